#pragma once
#include <memory>
#include <vector>

#include "ringtrain/allreduce/mpi/session.hpp"
#include "ringtrain/allreduce/ring/tuning.hpp"

namespace ringtrain::allreduce {

/// Times messages, a stream and sums of `bucket_bytes`, or 512 KiB where that is more, between the
/// hosts; nothing on one host. Takes tens of milliseconds at 1 Gbit/s, two or three seconds at
/// 100 Mbit/s and 20 ms a hop. Collective, on the main thread, while no sums are in flight.
RingTable measure_ring(const MpiSession& session, double bucket_bytes);

/// The links that gradients travel between hosts, one of each direction: from each host to the
/// next, and from the last to the first. Thread: main, while no sums are in flight.
class HostLinks {
 public:
  /// Collective. There are several hosts. `session` outlives it.
  explicit HostLinks(const MpiSession& session);
  ~HostLinks();
  /// Bytes a second from each host to the next, on all ranks: the median of three streams. Each
  /// link is timed while its two hosts use no other. Takes some 0.5 s, at 10 Mbit/s 3 s.
  /// Collective.
  std::vector<double> measure();

  /// When a link is timed. No host is in two links of a turn.
  static std::size_t turn_of(std::size_t link, std::size_t links);
  static constexpr std::size_t turns = 3;

 private:
  class Lane;
  /// Seconds a block on each link, of a stream of so many; 0 where that is 0.
  std::vector<double> time_blocks(const std::vector<std::size_t>& blocks);

  const MpiSession& session_;
  const std::unique_ptr<Lane> lane_;
};

}  // namespace ringtrain::allreduce
