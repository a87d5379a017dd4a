#include "allreduce/compression/low_rank.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

namespace ringtrain::allreduce {
namespace {

double exact_dot(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += double(a[i]) * double(b[i]);
  return sum;
}

// A row is shorter than this part of what it was only where rounding is all that is left of it.
constexpr double least_remainder = 1e-6;

void make_orthogonal(const Matrix& m, std::size_t k) {
  for (std::size_t before = 0; before < k; ++before) {
    const auto along = static_cast<float>(-exact_dot(m.row(k), m.row(before)));
    add_combination(m.row(k), m.row(before).data(), 0, {&along, 1});
  }
}

// Infinity / infinity is NaN, which spreads.
void make_unit(std::span<float> row, double least) {
  const double length = std::sqrt(exact_dot(row, row));
  const double divisor = length <= least ? HUGE_VAL : length;
  for (float& value : row) value = static_cast<float>(value / divisor);
}

}  // namespace

void times_right(const Matrix& m, const Matrix& right, const Matrix& left) {
  for (std::size_t i = 0; i < m.rows; ++i)
    for (std::size_t k = 0; k < right.rows; ++k) left.row(k)[i] = dot(m.row(i), right.row(k));
}

void times_left(const Matrix& m, const Matrix& left, const Matrix& right) {
  constexpr std::size_t together = 4;  // rows of m that stay in the cache for all of `left`
  std::fill_n(right.values, right.rows * right.columns, 0.0f);
  for (std::size_t i = 0; i < m.rows; i += together)
    for (std::size_t k = 0; k < left.rows; ++k)
      add_combination(right.row(k), m.row(i).data(), m.columns,
                      left.row(k).subspan(i, std::min(together, m.rows - i)));
}

void add_product(const Matrix& m, const Matrix& left, const Matrix& right, float factor) {
  std::vector<float> factors(left.rows);
  for (std::size_t i = 0; i < m.rows; ++i) {
    for (std::size_t k = 0; k < left.rows; ++k) factors[k] = factor * left.row(k)[i];
    add_combination(m.row(i), right.values, right.columns, factors);
  }
}

void orthonormalise(const Matrix& m) {
  for (std::size_t k = 0; k < m.rows; ++k) {
    const double before = std::sqrt(exact_dot(m.row(k), m.row(k)));
    make_orthogonal(m, k);
    make_unit(m.row(k), least_remainder * before);
    make_orthogonal(m, k);
    make_unit(m.row(k), 0.5);
  }
}

}  // namespace ringtrain::allreduce
