#pragma once
#include <chrono>
#include <span>
#include <vector>

#include "ringtrain/allreduce/communicator/communicator.hpp"

namespace ringtrain::allreduce {

/// Sums the flat gradient in a few large buckets while the backward pass still runs. Backward goes
/// from the last layer to the first, so what is final is always a tail of the buffer.
class GradientReducer {
 public:
  /// The last bucket is never hidden, so it is small; a smaller one fills the network less well
  /// (2 hosts at 1 Gbit/s: 256 KiB 0.96, 512 KiB 0.97, 1 MiB 1 of its speed).
  static constexpr std::size_t default_bucket_bytes = std::size_t{512} << 10;

  /// `gradients`, best from communicator.memory(), `communicator` and `replace`, through which each
  /// sum goes if it is not null, outlive the reducer.
  GradientReducer(Communicator& communicator, View gradients,
                  std::size_t bucket_bytes = default_bucket_bytes,
                  const ReduceHook* replace = nullptr);
  /// Gives up unfinished sums, so that the gradients can go while an exception unwinds.
  ~GradientReducer();
  GradientReducer(const GradientReducer&) = delete;

  /// Where the sums of a step begin and end, in elements and ascending, when its gradients become
  /// final in this order: final_from() is called with each. A ring adds in an order that depends on
  /// these bounds, so they are part of what makes two runs equal to the bit.
  std::vector<std::uint64_t> bounds(std::span<const std::size_t> firsts) const;

  /// Whether sums wait for finish() instead of running beside what the caller does until then. The
  /// buckets are the same. Between steps.
  void start_late(bool late) { late_ = late; }

  /// Every gradient from `first` on is final. Starts a sum once a bucket is full; never waits.
  void final_from(std::size_t first);
  /// Starts the sum of what is left and waits for all sums of this step.
  void finish();

  /// The sums of this step were used: what compression left out of them is due in the next.
  void accept() { communicator_.accept(); }

  /// How long before finish() each bucket of the last step was final, in seconds and in the order
  /// of the sums.
  std::vector<double> leads_s() const;
  /// How long before finish() the first sum was started; 0 where there was none.
  double first_lead_s() const;

 private:
  struct Bucket {
    std::size_t first = 0, end = 0;
    std::chrono::steady_clock::time_point full = {};
  };

  void close_bucket(std::size_t first);
  void start_sum(const Bucket& bucket);
  bool fills_bucket(std::size_t first, std::size_t end) const { return end - first >= bucket_; }

  Communicator& communicator_;
  View gradients_;
  std::size_t bucket_;  // elements
  const ReduceHook* replace_;
  bool late_ = false;
  std::size_t bucketed_;         // gradients [bucketed_, end) are in buckets of this step
  std::vector<Bucket> buckets_;  // of the step, the last one's until there are new ones
};

}  // namespace ringtrain::allreduce
