#pragma once
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <stop_token>
#include <thread>

#include "allreduce/hierarchical/hierarchical_allreduce.hpp"

namespace ringtrain::allreduce {

/// A thread that sums one after the other, in the order they were handed over. Asleep while it
/// has none.
class SumThread {
 public:
  /// The destructor waits for the sum the thread is in: make that end first.
  explicit SumThread(std::function<void(const PendingSum&)> sum);

  /// Both rethrow what a sum before threw.
  void start(const PendingSum& sum);
  /// Waits until all are summed.
  void finish();

 private:
  void run(const std::stop_token& stop);

  std::function<void(const PendingSum&)> sum_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<PendingSum> waiting_;  // guarded by mutex_; the front one is being summed
  std::exception_ptr failure_;      // guarded by mutex_
  std::jthread thread_;             // last: it uses the others
};

}  // namespace ringtrain::allreduce
