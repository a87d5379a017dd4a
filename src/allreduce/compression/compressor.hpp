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
class Compressor {
 public:
  virtual ~Compressor() = default;
  /// Sums in place, with what was left out before. All ranks of `ring`, one a host, call it with
  /// the same matrices, and end with the same bits. What is not finite on one host makes its matrix
  /// not finite on all.
  virtual void sum(std::span<const Piece> pieces, Ring& ring) = 0;
  /// The sums since the last accept(), one of every matrix, count: what they left out will be added
  /// to the next. Before that, sums change nothing that later ones depend on.
  virtual void accept() = 0;
  /// What later sums depend on, as of the last accept(): so many numbers, which read_kept() copies
  /// to `values` and write_kept() takes from there.
  virtual std::size_t kept_count() const = 0;
  virtual void read_kept(std::span<float> values) const = 0;
  virtual void write_kept(std::span<const float> values) = 0;
};

std::unique_ptr<Compressor> make_powersgd(const Compression& how,
                                          std::span<const GradientMatrix> matrices);
std::unique_ptr<Compressor> make_topk(const Compression& how,
                                      std::span<const GradientMatrix> matrices);
/// The first right factor of `matrix`, rank rows of its columns in [-1, 1): the same on every host.
std::vector<float> first_right_factor(const GradientMatrix& matrix, std::size_t rank);

}  // namespace ringtrain::allreduce
