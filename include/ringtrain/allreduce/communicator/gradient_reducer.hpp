#pragma once
// Room `allreduce/communicator`: the interface of all that sums, and what needs no more than that.
// Communicator starts all-reduces of views and waits for them; GradientReducer cuts gradients into
// buckets and starts one for each as soon as backward has finished it.
//
// Threads: main.
// Collective: everything, in the same order on all ranks.
#include <chrono>
#include <span>
#include <vector>

#include "ringtrain/allreduce/communicator/communicator.hpp"

namespace ringtrain::allreduce {

/// How gradients are cut into buckets, and what ranks get of one.
struct Buckets {
  /// Each begins a multiple of so many gradients behind the head, the one in front with the head.
  std::size_t unit = 1;
  /// Whether a rank gets the sums of its part alone (Communicator::start_reduce_scatter); but of
  /// the bucket in front, which nothing hides, all ranks get all. The gradients end at a whole
  /// unit, which is a multiple of the ranks.
  bool scattered = false;
};

/// Sums the flat gradient in a few large buckets while the backward pass still runs. Backward goes
/// from the last layer to the first, so what is final is always a tail of the buffer. Thread: main.
class GradientReducer {
 public:
  /// The last bucket is never hidden, so it is small; a smaller one fills the network less well
  /// (2 hosts at 1 Gbit/s: 256 KiB 0.96, 512 KiB 0.97, 1 MiB 1 of its speed).
  static constexpr std::size_t default_bucket_bytes = std::size_t{512} << 10;

  /// `values`, best from communicator.memory(): `head` numbers that are always exact, then the
  /// gradients, which are summed as `gradients` says; its `first` is set here. Both the values and
  /// `communicator` outlive the reducer. Not collective.
  GradientReducer(Communicator& communicator, View values,
                  std::size_t bucket_bytes = default_bucket_bytes, std::size_t head = 0,
                  const SumOptions& gradients = {}, const Buckets& buckets = {});
  /// Gives up unfinished sums, so that the values can go while an exception unwinds.
  ~GradientReducer();
  GradientReducer(const GradientReducer&) = delete;

  /// Where the buckets of a step begin and end, in elements and ascending, when its gradients
  /// become final in this order: final_from() is called with each. A ring adds in an order that
  /// depends on these bounds, so they are part of what makes two runs equal to the bit. Not
  /// collective.
  std::vector<std::uint64_t> bounds(std::span<const std::size_t> firsts) const;

  /// Those of `firsts`, in the same order, at which final_from() starts a sum. Not collective.
  std::vector<std::uint64_t> starts(std::span<const std::size_t> firsts) const;

  /// Whether sums wait for finish() instead of running beside what the caller does until then. The
  /// buckets are the same. Between steps. Not collective.
  void start_late(bool late) { late_ = late; }

  /// Collective. Every value from `first` on is final. Starts a sum once a bucket is full; never
  /// waits. Throws what went wrong with earlier sums.
  void final_from(std::size_t first);
  /// Collective. Starts the sum of what is left, then Communicator::finish().
  void finish();
  /// Collective. Sums `bucket` between steps, and finishes. Calls no hook and scatters nothing: the
  /// sum is all that comes of it, and all ranks get it.
  void sum(const Range& bucket);

  /// The sums of this step were used: what compression left out of them is due in the next. Not
  /// collective.
  void accept();

  /// How long before finish() each bucket of the last step was final, in seconds and in the order
  /// of the sums.
  std::vector<double> leads_s() const;
  /// How long before finish() the first sum was started; 0 where there was none.
  double first_lead_s() const;

 private:
  struct Bucket {
    Range range;
    std::chrono::steady_clock::time_point full;
  };

  void close_bucket(std::size_t first);
  void start_sum(const Range& bucket, SumOptions options);
  std::size_t bound(std::size_t first) const;
  bool fills_bucket(std::size_t first, std::size_t end) const { return end - first >= bucket_; }

  Communicator& communicator_;
  View values_;
  std::size_t bucket_;  // elements
  std::size_t head_;
  SumOptions gradients_;
  Buckets cut_;
  bool late_ = false;
  std::size_t bucketed_;         // values [bucketed_, end) are in buckets of this step
  std::vector<Bucket> buckets_;  // of the step, the last one's until there are new ones
};

}  // namespace ringtrain::allreduce
