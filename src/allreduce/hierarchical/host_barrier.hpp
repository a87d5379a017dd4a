#pragma once
#include <atomic>
#include <cstdint>
#include <stop_token>

namespace ringtrain::allreduce {

/// A barrier's state, in memory that its ranks share. Zeroed memory is a barrier nobody waits at.
struct BarrierState {
  alignas(64) std::atomic<std::uint32_t> arrived;
  alignas(64) std::atomic<std::uint32_t> generation;  // a futex
  std::atomic<std::uint32_t> sleepers;
};
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

/// One rank's side of a barrier between the ranks of a host: as fast as shared memory, yet it costs
/// no core while it waits long.
class HostBarrier {
 public:
  /// `crowded`: the host has fewer cores than ranks, so that waiting by spinning keeps the rank
  /// waited for off its core. wait() throws Error once `stop` is requested.
  HostBarrier(BarrierState& state, int ranks, bool crowded, std::stop_token stop);
  /// Waits until all ranks are here. What they wrote before is then visible to all.
  void wait();

 private:
  void sleep(std::uint32_t generation);

  BarrierState& state_;
  const std::uint32_t ranks_;
  const bool crowded_;
  std::stop_token stop_;
};

}  // namespace ringtrain::allreduce
