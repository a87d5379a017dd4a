#pragma once
#include <vector>

#include "ringtrain/allreduce/ring/ring.hpp"

namespace ringtrain::allreduce {

/// What a sum between hosts took, cut in this way.
struct RingTrial {
  RingTuning tuning = {};
  double seconds = 0;
};

/// How the links between hosts were found to be, as rank 0 timed them. All ranks have the same.
struct RingTable {
  int hosts = 1;
  double hop_s = 0;           ///< of a message of next to nothing from host to host
  double bytes_a_second = 0;  ///< of a stream to the next host, while one comes from the other
  double bytes = 0;           ///< of the sums of `trials`, as each host holds them
  std::vector<RingTrial> trials = {};  ///< the default tuning first; none where there is one host

  /// For how long a sum of so many bytes keeps each link busy.
  double carried_s(double bytes_of_sum) const;
};

/// How sums are to travel, and what that follows from.
struct RingChoice {
  SumPlan plan = {};
  double seconds = 0;  ///< of a sum of `measured.bytes`, alone
  RingTable measured = {};
};

/// The most sums that choose_ring() has under way at a time.
constexpr int most_sums_at_once = 16;

/// The default tuning, unless a trial was more than a twentieth faster. Where a hop takes 1 ms or
/// more, as many sums of `bucket_bytes` at once as keep the links busy for 95 % of the time, 16 at
/// most; else one.
RingChoice choose_ring(const RingTable& measured, double bucket_bytes);

}  // namespace ringtrain::allreduce
