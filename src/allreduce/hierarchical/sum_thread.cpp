#include "allreduce/hierarchical/sum_thread.hpp"

#include <sys/prctl.h>

#include <stop_token>
#include <utility>

namespace ringtrain::allreduce {

SumThread::SumThread(std::function<void(const PendingSum&)> sum)
    : sum_(std::move(sum)), thread_([this](const std::stop_token& stop) { run(stop); }) {}

void SumThread::start(const PendingSum& sum) {
  const std::scoped_lock lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
  waiting_.push_back(sum);
  changed_.notify_all();
}

void SumThread::finish() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return waiting_.empty(); });
  if (failure_) std::rethrow_exception(failure_);
}

void SumThread::run(const std::stop_token& stop) {
  ::prctl(PR_SET_NAME, "sum");
  ::prctl(PR_SET_TIMERSLACK, 1);  // naps of microseconds; by default they take 50 us longer
  std::unique_lock lock(mutex_);
  while (changed_.wait(lock, stop, [&] { return !waiting_.empty(); })) {
    const PendingSum next = waiting_.front();
    lock.unlock();
    std::exception_ptr failure;
    try {
      sum_(next);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    if (failure) {
      failure_ = failure;
      waiting_.clear();  // the ranks have lost step
    } else {
      waiting_.pop_front();
    }
    changed_.notify_all();
  }
}

}  // namespace ringtrain::allreduce
