#include "compute/cuda/runtime/batch_block.hpp"

#include <cstring>

#include "ringtrain/base/error.hpp"

namespace ringtrain::compute::cuda {
namespace {

std::size_t aligned(std::size_t bytes) { return (bytes + 255) / 256 * 256; }

template <class T>
void copy(std::byte* to, const std::vector<T>& values) {
  if (!values.empty()) std::memcpy(to, values.data(), values.size() * sizeof(T));
}

}  // namespace

BatchBlock::BatchBlock(int batch, std::size_t image_bytes)
    : batch_(batch),
      image_bytes_(image_bytes),
      samples_(aligned(sizeof(StepNumbers))),
      images_(samples_ + aligned(batch * sizeof(Sample))) {}

void BatchBlock::fill(std::byte* block, const Batch& batch, const StepNumbers& numbers) const {
  expects(batch.size() == batch_, "Program::run: the batch has the schedule's size");
  expects(batch.images.size() == batch_ * image_bytes_,
          "Program::run: the images have the schedule's extents");
  std::memcpy(block, &numbers, sizeof numbers);
  copy(block + samples_, batch.samples);
  copy(block + images_, batch.images);
}

}  // namespace ringtrain::compute::cuda
