#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>

#include "compute/cuda/runtime/batch_block.hpp"
#include "compute/cuda/runtime/runtime.hpp"

namespace ringtrain::compute::cuda {

/// Brings batches to the GPU on a stream of their own, while batches before are trained on. Nothing
/// may be queued that uses one when this object goes.
class BatchCopies {
 public:
  /// That are on their way or in use, beyond the one that the host waits for.
  static constexpr int ahead = 2;

  /// `wait` returns when the event is reached, and throws Error where that cannot be.
  BatchCopies(const BatchBlock& block, cudaStream_t compute,
              std::function<void(const Event&)> wait);

  /// Starts to copy a batch of `step`. What is queued on the compute stream from now on may use it
  /// where the result says, up to release(). Waits until the batch three before was copied.
  const std::byte* bring(std::int64_t step, const Batch& batch, const StepNumbers& numbers);
  /// What uses the batch brought last is queued.
  void release();

  /// Seconds of a step's batches: writing them where the GPU copies from, by the host's clock, and
  /// the copies, by the copy stream's events, without what they wait for.
  struct Times {
    double staged_s = 0, copy_s = 0;
  };
  /// Of a step that the GPU is done with, once.
  Times take_times(std::int64_t step);
  /// Waits for all copies.
  void drain() const { static_cast<void>(cudaStreamSynchronize(stream_.get())); }

 private:
  struct Slot {
    PinnedBytes pinned;
    DeviceBytes device;
    Event begun, copied, taken;
    std::optional<std::int64_t> step = {};  // whose copy's time is not read yet
  };
  void read_time(Slot& slot);

  const BatchBlock block_;
  const cudaStream_t compute_;
  const std::function<void(const Event&)> wait_;
  const Stream stream_;
  std::array<Slot, ahead + 1> slots_;
  std::uint64_t brought_ = 0;
  std::map<std::int64_t, Times> times_;  // by steps
};

}  // namespace ringtrain::compute::cuda
