#include "compute/cuda/runtime/batch_copies.hpp"

#include <chrono>
#include <utility>

namespace ringtrain::compute::cuda {

BatchCopies::BatchCopies(const BatchBlock& block, cudaStream_t compute,
                         std::function<void(const Event&)> wait)
    : block_(block), compute_(compute), wait_(std::move(wait)), stream_(make_stream()) {
  for (Slot& slot : slots_)
    slot = {PinnedBytes(block_.bytes()), DeviceBytes(block_.bytes()), make_timed_event(),
            make_timed_event(), make_event()};
}

const std::byte* BatchCopies::bring(std::int64_t step, const Batch& batch,
                                    const StepNumbers& numbers) {
  Slot& slot = slots_[brought_++ % slots_.size()];
  wait_(slot.copied);  // its last use
  read_time(slot);     // before its events are recorded anew
  const auto begin = std::chrono::steady_clock::now();
  block_.fill(slot.pinned.data(), batch, numbers);
  times_[step].staged_s +=
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  check(cudaStreamWaitEvent(stream_.get(), slot.taken.get(), 0), "cudaStreamWaitEvent");
  check(cudaEventRecord(slot.begun.get(), stream_.get()), "cudaEventRecord");
  check(cudaMemcpyAsync(slot.device.data(), slot.pinned.data(), slot.pinned.size(),
                        cudaMemcpyHostToDevice, stream_.get()),
        "cudaMemcpyAsync");
  follow(compute_, slot.copied, stream_.get());
  slot.step = step;
  return slot.device.data();
}

void BatchCopies::release() {
  check(cudaEventRecord(slots_[(brought_ - 1) % slots_.size()].taken.get(), compute_),
        "cudaEventRecord");
}

BatchCopies::Times BatchCopies::take_times(std::int64_t step) {
  for (Slot& slot : slots_)
    if (slot.step == step) read_time(slot);
  const Times times = times_[step];
  times_.erase(step);
  return times;
}

void BatchCopies::read_time(Slot& slot) {
  if (slot.step) times_[*slot.step].copy_s += microseconds(slot.begun, slot.copied) * 1e-6;
  slot.step.reset();
}

}  // namespace ringtrain::compute::cuda
