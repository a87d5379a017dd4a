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
      labels_(aligned(sizeof(StepNumbers))),
      samples_(labels_ + aligned(batch * sizeof(std::int32_t))),
      epochs_(samples_ + aligned(batch * sizeof(std::uint64_t))),
      distortions_(epochs_ + aligned(batch * sizeof(std::uint32_t))),
      images_(distortions_ + aligned(batch * sizeof(ColorJitter))) {}

void BatchBlock::fill(std::byte* block, const Batch& batch, const StepNumbers& numbers) const {
  const auto samples = static_cast<std::size_t>(batch_);
  expects(batch.labels.size() == samples && batch.samples.size() == samples &&
              batch.epochs.size() == samples && batch.distortions.size() == samples,
          "Program::run: the batch has the schedule's size");
  expects(batch.images.size() == samples * image_bytes_,
          "Program::run: the images have the schedule's extents");
  std::memcpy(block, &numbers, sizeof numbers);
  copy(block + labels_, batch.labels);
  copy(block + samples_, batch.samples);
  copy(block + epochs_, batch.epochs);
  copy(block + distortions_, batch.distortions);
  copy(block + images_, batch.images);
}

}  // namespace ringtrain::compute::cuda
