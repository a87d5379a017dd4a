#pragma once
#include <span>

#include "ringtrain/allreduce/mpi/session.hpp"

namespace ringtrain::allreduce {

/// A question to another clock, in seconds: asked and answered by the own clock, read in between.
struct ClockProbe {
  double asked = 0, read = 0, answered = 0;
};

/// How far another clock is before the own one, around one moment of the own one.
struct ClockOffset {
  double at = 0, offset = 0;
  double doubt = 0;  ///< the offset is right to so many seconds
};

/// From the probe with the shortest round trip: what delays one way and not the other is least in
/// it (Cristian 1989, "Probabilistic clock synchronization"). At least one probe.
ClockOffset offset_from(std::span<const ClockProbe> probes);

/// `moment` of the own clock by the other one, whose offset was `before` and `after`: clocks drift
/// apart evenly.
double by_other_clock(double moment, const ClockOffset& before, const ClockOffset& after);

/// How far rank 0's steady clock is before this rank's. Ranks of rank 0's host have the same clock.
/// Takes some milliseconds for each of the other ranks. Collective.
ClockOffset measure_clock_offset(const MpiSession& session);

}  // namespace ringtrain::allreduce
