#pragma once
// Room `allreduce/compression`: gradients that travel between hosts as a few numbers (--compress),
// with what was left out kept for the next step. `powersgd` has low-rank factors, `topk` the
// largest numbers; CompressedRing gives whole matrices of a bucket to one of them.
//
// Threads: the one that sums; factors are computed on several where CompressedGradients says so.
// Collective: Compressor::allreduce(), among one rank a host.
#include <cstddef>
#include <exception>
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
  virtual void allreduce(std::span<const Piece> pieces, Ring& ring) = 0;
};

/// `threads` as in CompressedGradients.
std::unique_ptr<Compressor> make_powersgd(const Compression& how,
                                          std::span<const GradientMatrix> matrices,
                                          int threads = 1);
std::unique_ptr<Compressor> make_topk(const Compression& how,
                                      std::span<const GradientMatrix> matrices, int threads = 1);

/// Calls `work` with 0 to `count` - 1, on so many threads at a time. Throws what the last one
/// threw.
template <class Work>
void for_each_piece(std::size_t count, int threads, const Work& work) {
  if (threads <= 1 || count <= 1) {
    for (std::size_t i = 0; i < count; ++i) work(i);
    return;
  }
  std::exception_ptr failure;
#pragma omp parallel for schedule(dynamic) num_threads(threads)
  for (std::size_t i = 0; i < count; ++i) {
    try {
      work(i);
    } catch (...) {
#pragma omp critical(for_each_piece)
      failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

/// The first right factor of `matrix`, rank rows of its columns in [-1, 1): the same on every host.
std::vector<float> first_right_factor(const GradientMatrix& matrix, std::size_t rank);

/// What travels of several pieces in one sum, in the order in which it was added.
class PackedBuffer {
 public:
  void clear() {
    numbers_.clear();
    places_.clear();
  }
  /// Room for the next piece's numbers. What was given before may be elsewhere afterwards.
  std::span<float> add(std::size_t count) {
    places_.push_back(numbers_.size());
    numbers_.resize(numbers_.size() + count);
    return std::span(numbers_).last(count);
  }
  /// The first number of a piece.
  float* of(std::size_t piece) { return numbers_.data() + places_[piece]; }
  std::span<float> numbers() { return numbers_; }

 private:
  std::vector<float> numbers_;
  std::vector<std::size_t> places_;
};

/// What a host left out of the sums of its matrices: as of the last step that counts, and of the
/// step under way.
class ErrorFeedback {
 public:
  ErrorFeedback(const Compression& how, std::span<const GradientMatrix> matrices);
  /// values + what was left out of them. The caller takes out what it sends: the rest is left over.
  std::span<float> add_to(std::size_t matrix, const float* values);
  /// What add_to() gave for this matrix last.
  std::span<float> of(std::size_t matrix) { return part(next_, matrix); }
  void accept() { kept_.swap(next_); }
  void scale(float factor) {
    for (float& value : kept_) value *= factor;
  }
  /// kept() times `factor`.
  void read(std::span<float> values, float factor) const {
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = factor * kept_[i];
  }
  /// What was left out of the sums that count, of all matrices.
  const std::vector<float>& kept() const { return kept_; }
  std::vector<float>& kept() { return kept_; }

 private:
  std::span<float> part(std::vector<float>& all, std::size_t matrix) const;

  std::vector<std::size_t> bounds_;  // of each matrix, and the end
  std::vector<float> kept_, next_;
};

}  // namespace ringtrain::allreduce
