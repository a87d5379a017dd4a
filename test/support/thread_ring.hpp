#pragma once
#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "ringtrain/allreduce/ring/ring.hpp"

namespace ringtrain {

/// One direction between two thread ranks. A message moves only once both ends have offered memory
/// for it, and straight from one to the other, as a network does at its strictest: a ring that
/// needs more, or touches memory in flight, fails here.
class ThreadChannel {
 public:
  allreduce::RingLink::Ticket receive(std::span<float> in) {
    const std::scoped_lock lock(mutex_);
    in_.push_back(in);
    const auto ticket = moved_ + in_.size();
    move();
    return ticket;
  }
  allreduce::RingLink::Ticket send(std::span<const float> out) {
    const std::scoped_lock lock(mutex_);
    out_.push_back(out);
    const auto ticket = moved_ + out_.size();
    move();
    return ticket;
  }
  void wait(allreduce::RingLink::Ticket last) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return moved_ >= last; });
  }

 private:
  void move() {
    while (!in_.empty() && !out_.empty()) {
      expects(in_.front().size() == out_.front().size(), "both ends agree on a message's size");
      std::ranges::copy(out_.front(), in_.front().begin());
      in_.pop_front();
      out_.pop_front();
      ++moved_;
    }
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::span<float>> in_;
  std::deque<std::span<const float>> out_;
  allreduce::RingLink::Ticket moved_ = 0;
};

/// A ring of thread ranks; make one link a thread.
class ThreadRing {
 public:
  explicit ThreadRing(int size) : channels_(static_cast<std::size_t>(size)) {}

  class Link final : public allreduce::RingLink {
   public:
    Link(ThreadRing& ring, int rank) : ring_(ring), rank_(rank) {}
    int rank() const override { return rank_; }
    int size() const override { return static_cast<int>(ring_.channels_.size()); }
    Ticket receive(std::span<float> in) override { return from_left().receive(in); }
    Ticket send(std::span<const float> out) override { return to_right().send(out); }
    void wait_received(Ticket last) override { from_left().wait(last); }
    void wait_sent(Ticket last) override { to_right().wait(last); }

   private:
    // Channel i leads to rank i.
    ThreadChannel& from_left() { return ring_.channels_[static_cast<std::size_t>(rank_)]; }
    ThreadChannel& to_right() {
      return ring_.channels_[static_cast<std::size_t>((rank_ + 1) % size())];
    }

    ThreadRing& ring_;
    int rank_;
  };

 private:
  std::deque<ThreadChannel> channels_;
};

/// Runs `body(rank)` for each rank on a thread of its own; rethrows what one of them threw.
template <class Body>
void on_threads(int ranks, Body body) {
  std::exception_ptr failure;
  std::mutex mutex;
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < ranks; ++rank)
      threads.emplace_back([&, rank] {
        try {
          body(rank);
        } catch (...) {
          const std::scoped_lock lock(mutex);
          failure = std::current_exception();
        }
      });
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace ringtrain
