#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "ringtrain/allreduce/communicator/compression.hpp"
#include "ringtrain/allreduce/ring/ring.hpp"

namespace ringtrain::allreduce {

/// A matrix to sum: which, and where its values lie.
struct Piece {
  std::size_t matrix = 0;
  float* values = nullptr;
};

/// Sums matrices between hosts, compressed, and remembers for each what was left out of its sum.
/// Used by one thread at a time.
class Compressor : public CompressionState {
 public:
  /// Sums in place, with what was left out before. All ranks of `ring`, one a host, call it with
  /// the same matrices, and end with the same bits. What is not finite on one host makes its matrix
  /// not finite on all.
  virtual void sum(std::span<const Piece> pieces, Ring& ring) = 0;
};

std::unique_ptr<Compressor> make_powersgd(const Compression& how,
                                          std::span<const GradientMatrix> matrices);
std::unique_ptr<Compressor> make_topk(const Compression& how,
                                      std::span<const GradientMatrix> matrices);
/// The first right factor of `matrix`, rank rows of its columns in [-1, 1): the same on every host.
std::vector<float> first_right_factor(const GradientMatrix& matrix, std::size_t rank);

}  // namespace ringtrain::allreduce
