#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include "ringtrain/base/memory/view.hpp"

namespace ringtrain::allreduce {

/// How gradients are compressed where they travel between hosts. What a host leaves out of a sum it
/// adds to its next gradients (error feedback), so that nothing is lost, only late.
struct Compression {
  enum class Kind {
    none,
    powersgd,  ///< as two thin factors (Vogels et al. 2019, "PowerSGD")
    topk,      ///< the values that are largest in size, with their places
  };
  Kind kind = Kind::none;
  int rank = 0;      ///< powersgd: of the product of the factors, above 0
  double ratio = 0;  ///< topk: share of a tensor's values that travel, above 0, at most 1

  explicit operator bool() const { return kind != Kind::none; }
  friend bool operator==(const Compression&, const Compression&) = default;
};

/// A tensor of the gradient as a matrix, row-major. Those of a single row always travel as they
/// are: biases and BatchNorm's parameters are small and sensitive.
struct GradientMatrix {
  std::size_t first = 0;  ///< its place among the gradients
  std::size_t rows = 1, columns = 1;

  std::size_t count() const { return rows * columns; }
  Range range() const { return {first, count()}; }
};

/// Which gradients are compressed, and how.
struct CompressedGradients {
  Compression how = {};
  std::vector<GradientMatrix> matrices = {};  ///< all gradients, one behind the other
  int threads = 1;  ///< that work on the matrices of a sum; changes speed, never the result
};

/// What compression keeps on this rank from step to step: what it left out of sums, and for
/// powersgd its last factors. The next sums depend on it, so it is part of the training state.
/// Thread: main, while no sums are in flight. Not collective.
class CompressionState {
 public:
  virtual ~CompressionState() = default;
  /// The sums since the last accept(), one of every matrix, count: what they left out will be added
  /// to the next. Before that, sums change nothing that later ones depend on.
  virtual void accept() = 0;
  /// Gradients come `factor` times as large from now on, and so does what was left out of them, as
  /// of the last accept().
  virtual void scale(float factor) = 0;
  /// Its numbers, as of the last accept(). Spans have as many. What was left out is read times
  /// `factor`.
  virtual std::size_t size() const = 0;
  virtual void read(std::span<float> values, float factor = 1) const = 0;
  virtual void write(std::span<const float> values) = 0;
};

/// The rank of the factors as which `matrix` travels; 0: it travels as it is, because factors are
/// no smaller or not asked for.
std::size_t factor_rank(const Compression& how, const GradientMatrix& matrix);
/// How many of the values of `matrix` travel one by one; 0: it travels as it is.
std::size_t kept_values(const Compression& how, const GradientMatrix& matrix);

/// How many numbers of `matrix` are left over for the next sum: all, or none where it travels as it
/// is.
std::size_t left_over_count(const Compression& how, const GradientMatrix& matrix);
/// Numbers that a ring of `hosts` would sum with the bytes that `matrices` need: their count where
/// they travel as they are.
double travelling_numbers(const Compression& how, std::span<const GradientMatrix> matrices,
                          int hosts);

}  // namespace ringtrain::allreduce
