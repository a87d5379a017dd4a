#pragma once
// Room `allreduce/ring`: one all-reduce around a ring of ranks, written against RingLink, so that
// tests run ranks as threads. `Ring` cuts and orders it, `HalfLink` rounds what travels to 16 bits,
// `sum_kernels` add, `tuning` chooses from timed links how messages are cut.
//
// Threads: one at a time for a Ring. Nothing here knows of MPI.
// Collective: Ring::allreduce() and gather(), with equal sizes.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ringtrain/allreduce/communicator/communicator.hpp"
#include "ringtrain/base/memory/view.hpp"

namespace ringtrain::allreduce {

/// One rank's place in a ring: it sends to its right neighbour, rank + 1, and receives from its
/// left one. Messages arrive in the order in which they were sent.
class RingLink {
 public:
  /// Numbers the messages of one direction from 1, over the life of the link.
  using Ticket = std::uint64_t;

  virtual ~RingLink() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Starts receiving the left neighbour's next message, which has in.size() elements.
  virtual Ticket receive(std::span<float> in) = 0;
  /// Starts sending. `out` must not be written before wait_sent().
  virtual Ticket send(std::span<const float> out) = 0;
  /// Waits for this message and all before it.
  virtual void wait_received(Ticket last) = 0;
  virtual void wait_sent(Ticket last) = 0;
  /// Makes `values`, which are about to be sent, what the right neighbour will receive: for links
  /// that round.
  virtual void as_received(std::span<float> /*values*/) {}
};

/// Sums buffers in place around a ring, in segments that travel one behind the other, so that both
/// directions of every link stay busy. Each rank sends 2(n-1)/n of the data: the least there is.
///
/// The order of the additions is fixed: the data is cut into n parts (part_of), and part p is
/// x[p] + x[p+1] + ... + x[p+n-1], from left to right, rank numbers modulo n. So every rank ends
/// with the same bits in every run.
class Ring {
 public:
  /// `link` outlives the ring.
  explicit Ring(RingLink& link, RingTuning tuning = {});
  ~Ring();
  /// Collective, with the same size and element on all ranks. Waits until the sum is there and
  /// `data` may be written again. `wire`: what the numbers are rounded to on their way. A running
  /// sum is rounded once a rank that it passes, the sum itself once, so that all have the same.
  /// `hook`, if any, gets this rank's own_part() in pieces.
  void allreduce(std::span<float> data, Element wire = Element::fp32,
                 const ReduceHook* hook = nullptr);
  /// The part of `count` sums that rank `rank` of `ranks` completes and sends on.
  static Range own_part(std::size_t count, int rank, int ranks);
  /// `blocks`: one of each rank, equally long, of which this rank's is there. Collective, with the
  /// same size on all ranks. Waits until all are.
  void gather(std::span<float> blocks);
  int rank() const { return link_.rank(); }
  int size() const { return link_.size(); }

 private:
  RingLink& link_through(Element wire);
  void allreduce_through(RingLink& link, std::span<float> data, const RingTuning& tuning,
                         const ReduceHook* hook);

  RingLink& link_;
  const RingTuning tuning_;
  std::unique_ptr<RingLink> fp16_, bf16_;  // over link_, once there was need
  std::vector<float> inbox_;               // `window` segments that wait to be added
};

/// Part k of n near-equal parts of `count` elements; cut between cache lines, so that ranks that
/// share memory never write to the same line.
Range part_of(std::size_t count, std::size_t k, std::size_t n);

/// What Ring::allreduce() gives for these values of ranks 0, 1, ..., in one process: the definition
/// of its order.
std::vector<float> ring_order_sum(std::span<const std::vector<float>> ranks);

}  // namespace ringtrain::allreduce
