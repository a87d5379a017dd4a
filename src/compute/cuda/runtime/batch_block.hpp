#pragma once
#include <cstddef>
#include <span>

#include "compute/cuda/kernels/arguments/optimizer.hpp"
#include "compute/cuda/kernels/arguments/softmax.hpp"
#include "ringtrain/base/batch.hpp"

namespace ringtrain::compute::cuda {

/// What the host says of a step besides its batch.
struct StepNumbers {
  kernels::StepScalars update;
  kernels::StepFlags flags;
  float sample_weight;  ///< of each sample's gradient
  float share;          ///< of this rank in BatchNorm's statistics
};

/// A batch and its step's numbers as one block of bytes, so that one copy brings them to the GPU:
/// first what is small, then the images.
class BatchBlock {
 public:
  BatchBlock(int batch, std::size_t image_bytes);

  std::size_t bytes() const { return images_ + std::size_t(batch_) * image_bytes_; }
  /// Of all but the images.
  std::size_t small_bytes() const { return images_; }

  /// Fills a block of bytes() on the host. The batch has the extents given before.
  void fill(std::byte* block, const Batch& batch, const StepNumbers& numbers) const;

  // Where parts of a block lie.
  const StepNumbers* numbers(const std::byte* block) const { return at<StepNumbers>(block, 0); }
  const Sample* samples(const std::byte* block) const { return at<Sample>(block, samples_); }
  const std::uint8_t* images(const std::byte* block) const {
    return at<std::uint8_t>(block, images_);
  }

 private:
  template <class T>
  static const T* at(const std::byte* block, std::size_t offset) {
    return reinterpret_cast<const T*>(block + offset);
  }

  int batch_;
  std::size_t image_bytes_;
  std::size_t samples_, images_;  // offsets
};

}  // namespace ringtrain::compute::cuda
