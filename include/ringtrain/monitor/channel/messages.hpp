#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

#include "ringtrain/monitor/rank_stats.hpp"

namespace ringtrain::monitor {

/// 128 random bits which only the ranks of one job know: they travel through MPI.
using JobToken = std::array<std::byte, 16>;

/// A process of a host, as others on it see it.
struct ProcessName {
  std::uint64_t of = 0;       ///< the namespace that the id is of
  std::int64_t id = 0;        ///< 0: not known
  std::uint64_t started = 0;  ///< by the host's clock: another process may get the id later
};

// What goes over the side channel, as it lies in memory: all ranks run one build. Both ends prove
// who they are (handshake.hpp); then ranks send Heartbeats, and rank 0 answers each with a
// HeartbeatReply, a rank's last one with its goodbye. A connection that is lost is made again, with
// new proofs.

inline constexpr std::size_t most_text = std::size_t{1} << 16;  // with one message

struct Heartbeat {
  RankStats account{};
  std::uint64_t step = 0, meetings = 0;
  double in_phase_s = 0, limit_s = 0;
  double late_s = 0;  // a tick of its watchdog was lately: for so long the rank was not scheduled
  std::uint32_t phase = 0;
  std::uint32_t leaving = 0;     // the last one: what comes after is no failure
  std::uint32_t text_bytes = 0;  // that follow: the item that the main thread is at, then its stack
  std::uint32_t item_bytes = 0;  // of these; the stack is asked for by an end
  ProcessName process{};
};
static_assert(sizeof(Heartbeat) == 320, "docs/internals/watchdog.md says how many bytes it has");

struct HeartbeatReply {
  std::uint16_t exit_code = 0;   // not 0: end now, the job is over
  std::uint16_t late_ds = 0;     // as Heartbeat::late_s, of rank 0, in tenths of a second
  std::uint32_t text_bytes = 0;  // that follow: why, or rank 0's goodbye
};

}  // namespace ringtrain::monitor
