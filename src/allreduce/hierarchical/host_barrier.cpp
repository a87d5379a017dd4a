#include "allreduce/hierarchical/host_barrier.hpp"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

#include "ringtrain/base/error.hpp"

namespace ringtrain::allreduce {
namespace {

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Not FUTEX_PRIVATE: the waiters are other processes.
void futex(std::atomic<std::uint32_t>& word, int operation, std::uint32_t value,
           const timespec* timeout = nullptr) {
  ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), operation, value, timeout, nullptr,
            0);
}

}  // namespace

HostBarrier::HostBarrier(BarrierState& state, int ranks, bool crowded, std::stop_token stop)
    : state_(state),
      ranks_(static_cast<std::uint32_t>(ranks)),
      crowded_(crowded),
      stop_(std::move(stop)) {}

void HostBarrier::wait() {
  const std::uint32_t now = state_.generation.load(std::memory_order_acquire);
  if (state_.arrived.fetch_add(1, std::memory_order_acq_rel) == ranks_ - 1) {
    state_.arrived.store(0, std::memory_order_relaxed);
    state_.generation.store(now + 1, std::memory_order_seq_cst);
    if (state_.sleepers.load(std::memory_order_seq_cst) > 0)
      futex(state_.generation, FUTEX_WAKE, INT_MAX);
    return;
  }
  constexpr int spins = 4000, yields = 50;
  for (int i = 0; i < (crowded_ ? 0 : spins); ++i) {
    if (state_.generation.load(std::memory_order_acquire) != now) return;
    relax();
  }
  for (int i = 0; i < yields; ++i) {
    if (state_.generation.load(std::memory_order_acquire) != now) return;
    ::sched_yield();
  }
  sleep(now);
}

void HostBarrier::sleep(std::uint32_t generation) {
  constexpr timespec look_up{0, 100'000'000};  // for a stop request, which wakes nobody
  state_.sleepers.fetch_add(1, std::memory_order_seq_cst);
  while (state_.generation.load(std::memory_order_seq_cst) == generation) {
    if (stop_.stop_requested()) throw Error("wait for the ranks of this host", "given up");
    futex(state_.generation, FUTEX_WAIT, generation, &look_up);
  }
  state_.sleepers.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace ringtrain::allreduce
