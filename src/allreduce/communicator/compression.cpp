#include "ringtrain/allreduce/communicator/compression.hpp"

#include <algorithm>
#include <cmath>

namespace ringtrain::allreduce {

std::size_t factor_rank(const Compression& how, const GradientMatrix& matrix) {
  if (how.kind != Compression::Kind::powersgd || matrix.rows == 1) return 0;
  const std::size_t rank =
      std::min({static_cast<std::size_t>(how.rank), matrix.rows, matrix.columns});
  return rank * (matrix.rows + matrix.columns) < matrix.count() ? rank : 0;
}

std::size_t kept_values(const Compression& how, const GradientMatrix& matrix) {
  if (how.kind != Compression::Kind::topk || matrix.rows == 1) return 0;
  const auto count = static_cast<std::size_t>(std::ceil(how.ratio * double(matrix.count())));
  return std::clamp<std::size_t>(count, 1, matrix.count());
}

std::size_t left_over_count(const Compression& how, const GradientMatrix& matrix) {
  const bool compressed = factor_rank(how, matrix) > 0 || kept_values(how, matrix) > 0;
  return compressed ? matrix.count() : 0;
}

// A ring that sums N numbers sends 2 (n-1)/n N a host, one that gathers K a host n-1 times K: as
// many as a sum of K n / 2. A value has its place beside it, which is as large.
double travelling_numbers(const Compression& how, std::span<const GradientMatrix> matrices,
                          int hosts) {
  double numbers = 0;
  for (const GradientMatrix& matrix : matrices)
    if (const std::size_t rank = factor_rank(how, matrix); rank > 0)
      numbers += double(rank * (matrix.rows + matrix.columns));
    else if (const std::size_t kept = kept_values(how, matrix); kept > 0)
      numbers += double(kept) * hosts;
    else
      numbers += double(matrix.count());
  return numbers;
}

}  // namespace ringtrain::allreduce
