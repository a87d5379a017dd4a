#pragma once
#include <cstdint>

#include "ringtrain/monitor/channel/messages.hpp"

namespace ringtrain::train {

// What goes over a connection that brings a rank's slice of a save to rank 0, as it lies in memory:
// both ends' proofs (handshake.hpp), a ShardHello, rank 0's ShardAnswer, then, where it is
// `wanted`, the numbers, and `taken` once they are all there. One connection brings one slice.

struct ShardHello {
  std::uint64_t save = 0;   ///< numbered from 1, alike on all ranks
  std::uint64_t count = 0;  ///< numbers that follow
};

enum class ShardAnswer : std::uint8_t {
  wanted,    ///< go on
  early,     ///< rank 0 is not there yet: try again
  unwanted,  ///< it has it already, or has given that save up
  taken,
};

}  // namespace ringtrain::train
