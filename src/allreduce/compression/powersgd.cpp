#include <algorithm>
#include <cmath>
#include <memory>

#include "allreduce/compression/compressor.hpp"
#include "allreduce/compression/low_rank.hpp"
#include "ringtrain/base/philox.hpp"

namespace ringtrain::allreduce {
namespace {

// Times the power of two that brings the largest to 0.5..1, so that products neither overflow nor
// vanish. All 0 stays so.
bool bring_into_range(std::span<float> values) {
  float largest = 0;
  for (const float value : values) largest = std::max(largest, std::abs(value));
  if (largest == 0 || !std::isfinite(largest)) return false;
  int exponent = 0;
  static_cast<void>(std::frexp(largest, &exponent));
  for (float& value : values) value = std::ldexp(value, -exponent);
  return true;
}

// Each host's M, with what it left out before, is approximated in the space of `left`, an
// orthonormal basis that all hosts share: sum(M) ~ left^T (left sum(M)). The basis is that of
// sum(M) right^T, where `right` is what the step before came to: a power iteration over the steps.
class PowerSgd final : public Compressor {
 public:
  PowerSgd(const Compression& how, std::span<const GradientMatrix> matrices, int threads);
  void allreduce(std::span<const Piece> pieces, Ring& ring) override;
  void accept() override;
  void scale(float factor) override { left_over_.scale(factor); }
  std::size_t size() const override { return left_over_.kept().size() + right_.size(); }
  void read(std::span<float> values, float factor) const override;
  void write(std::span<const float> values) override;

 private:
  struct Factors {
    std::size_t rows, columns, rank;  // rank 0: travels as it is
    std::size_t right;                // where its right factor begins
  };

  Matrix whole(const Piece& piece, float* values) const {
    return {values, factors_[piece.matrix].rows, factors_[piece.matrix].columns};
  }
  Matrix left(const Piece& piece, float* values) const {
    return {values, factors_[piece.matrix].rank, factors_[piece.matrix].rows};
  }
  Matrix right(const Piece& piece, float* values) const {
    return {values, factors_[piece.matrix].rank, factors_[piece.matrix].columns};
  }
  bool is_factored(const Piece& piece) const { return factors_[piece.matrix].rank > 0; }
  void sum_left_factors(std::span<const Piece> pieces, Ring& ring);
  void sum_right_factors(std::span<const Piece> pieces, Ring& ring);
  void start_next_from(const Piece& piece, const Matrix& sum);
  void expand(std::span<const Piece> pieces);

  const std::vector<GradientMatrix> matrices_;
  const int threads_;
  std::vector<Factors> factors_;
  ErrorFeedback left_over_;
  std::vector<float> right_, next_right_;
  PackedBuffer left_factors_, right_factors_;
};

PowerSgd::PowerSgd(const Compression& how, std::span<const GradientMatrix> matrices, int threads)
    : matrices_(matrices.begin(), matrices.end()), threads_(threads), left_over_(how, matrices) {
  std::size_t right = 0;
  for (const GradientMatrix& matrix : matrices) {
    const std::size_t rank = factor_rank(how, matrix);
    factors_.push_back({matrix.rows, matrix.columns, rank, right});
    right += rank * matrix.columns;
  }
  right_.resize(right);
  next_right_.resize(right);
  for (std::size_t m = 0; m < matrices_.size(); ++m)
    std::ranges::copy(first_right_factor(matrices_[m], factors_[m].rank),
                      right_.begin() + static_cast<std::ptrdiff_t>(factors_[m].right));
}

void PowerSgd::read(std::span<float> values, float factor) const {
  expects(values.size() == size(), "CompressionState: as many numbers");
  left_over_.read(values.first(left_over_.kept().size()), factor);
  std::ranges::copy(right_, values.last(right_.size()).begin());
}

void PowerSgd::write(std::span<const float> values) {
  expects(values.size() == size(), "CompressionState: as many numbers");
  const std::size_t left_over = left_over_.kept().size();
  std::ranges::copy(values.first(left_over), left_over_.kept().begin());
  std::ranges::copy(values.subspan(left_over), right_.begin());
}

void PowerSgd::accept() {
  left_over_.accept();
  right_.swap(next_right_);
}

void PowerSgd::allreduce(std::span<const Piece> pieces, Ring& ring) {
  sum_left_factors(pieces, ring);
  sum_right_factors(pieces, ring);
  expand(pieces);
}

void PowerSgd::sum_left_factors(std::span<const Piece> pieces, Ring& ring) {
  left_factors_.clear();
  for (const Piece& piece : pieces)
    left_factors_.add(factors_[piece.matrix].rank * factors_[piece.matrix].rows);
  for_each_piece(pieces.size(), threads_, [&](std::size_t p) {
    const Piece& piece = pieces[p];
    if (!is_factored(piece)) return;
    const std::span<float> m = left_over_.add_to(piece.matrix, piece.values);
    times_right(whole(piece, m.data()), right(piece, &right_[factors_[piece.matrix].right]),
                left(piece, left_factors_.of(p)));
  });
  ring.allreduce(left_factors_.numbers());
}

// What this host's own factors cannot say is left over; what hosts differ in is summed.
void PowerSgd::sum_right_factors(std::span<const Piece> pieces, Ring& ring) {
  right_factors_.clear();
  for (const Piece& piece : pieces) {
    const Factors& f = factors_[piece.matrix];
    right_factors_.add((f.rank == 0 ? f.rows : f.rank) * f.columns);
  }
  for_each_piece(pieces.size(), threads_, [&](std::size_t p) {
    const Piece& piece = pieces[p];
    const Factors& f = factors_[piece.matrix];
    if (f.rank == 0) {
      std::copy_n(piece.values, f.rows * f.columns, right_factors_.of(p));
      return;
    }
    const Matrix m = whole(piece, left_over_.of(piece.matrix).data());
    const Matrix basis = left(piece, left_factors_.of(p));
    const Matrix own = right(piece, right_factors_.of(p));
    orthonormalise(basis);
    times_left(m, basis, own);
    add_product(m, basis, own, -1);
  });
  ring.allreduce(right_factors_.numbers());
}

void PowerSgd::expand(std::span<const Piece> pieces) {
  for_each_piece(pieces.size(), threads_, [&](std::size_t p) {
    const Piece& piece = pieces[p];
    const Matrix sum = whole(piece, piece.values);
    const std::size_t count = sum.rows * sum.columns;
    if (!is_factored(piece)) {
      std::copy_n(right_factors_.of(p), count, piece.values);
      return;
    }
    const Matrix summed = right(piece, right_factors_.of(p));
    std::fill_n(piece.values, count, 0.0f);
    add_product(sum, left(piece, left_factors_.of(p)), summed, 1);
    start_next_from(piece, summed);
  });
}

// A row of 0 would stay so for ever: the next step tries its old one again.
void PowerSgd::start_next_from(const Piece& piece, const Matrix& sum) {
  const std::size_t first = factors_[piece.matrix].right;
  const Matrix old = right(piece, &right_[first]), next = right(piece, &next_right_[first]);
  for (std::size_t k = 0; k < sum.rows; ++k) {
    std::ranges::copy(sum.row(k), next.row(k).begin());
    if (!bring_into_range(next.row(k))) std::ranges::copy(old.row(k), next.row(k).begin());
  }
}

}  // namespace

std::vector<float> first_right_factor(const GradientMatrix& matrix, std::size_t rank) {
  Philox random(0, Purpose::compression, 0, matrix.first);
  std::vector<float> right(rank * matrix.columns);
  for (float& value : right) value = random.uniform(-1, 1);
  return right;
}

std::unique_ptr<Compressor> make_powersgd(const Compression& how,
                                          std::span<const GradientMatrix> matrices, int threads) {
  return std::make_unique<PowerSgd>(how, matrices, threads);
}

}  // namespace ringtrain::allreduce
