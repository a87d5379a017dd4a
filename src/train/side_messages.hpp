#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

#include "train/stragglers.hpp"

namespace ringtrain {

/// 128 random bits which only the ranks of one job know: they travel through MPI.
using JobToken = std::array<std::byte, 16>;

// What goes over the side channel, as it lies in memory: all ranks run one build, which they
// compare before training. Ranks send a Hello, then Beats; rank 0 answers each with an Answer.

struct Hello {
  static constexpr std::uint32_t magic_number = 0x31647772;  // "rwd1"
  std::uint32_t magic = magic_number;
  std::uint32_t rank = 0;
  JobToken token{};
};

struct Beat {
  Work work{};
  std::uint64_t step = 0;
  double in_phase_s = 0, limit_s = 0;
  std::uint32_t activity = 0;
  std::uint32_t leaving = 0;     // the last one: what comes after is no failure
  std::uint32_t text_bytes = 0;  // that follow: the main thread's stack, asked for by an end
  std::uint32_t unused = 0;
};

struct Answer {
  std::uint32_t exit_code = 0;   // not 0: end now, the job is over
  std::uint32_t text_bytes = 0;  // that follow: why, or rank 0's goodbye
};

}  // namespace ringtrain
