#pragma once
#include <atomic>
#include <chrono>
#include <deque>
#include <stop_token>

#include "allreduce/mpi/mpi_check.hpp"
#include "ringtrain/allreduce/ring/ring.hpp"

namespace ringtrain::allreduce {

/// A ring of the ranks of an MPI communicator. Waits mostly asleep, so that the core goes on
/// computing; a wait throws Error once `stop` is requested. Rings of the same ranks with different
/// `tag`s know nothing of each other; one thread uses each, and together they look at the network
/// as often as one does.
class MpiLink final : public RingLink {
 public:
  /// `waiting`: how many links of this rank are in a wait; it outlives them.
  MpiLink(MPI_Comm ranks, std::stop_token stop, int tag, std::atomic<int>& waiting);
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  Ticket receive(std::span<float> in) override;
  Ticket send(std::span<const float> out) override;
  void wait_received(Ticket last) override { wait(incoming_, last); }
  void wait_sent(Ticket last) override { wait(outgoing_, last); }

 private:
  struct Message {
    MPI_Request request = MPI_REQUEST_NULL;
    int count = 0;  // elements
  };
  struct Direction {
    std::deque<Message> open;
    Ticket done = 0;  // the last message that is through

    Ticket started() const { return done + open.size(); }
  };

  void wait(Direction& direction, Ticket last);
  void rest();

  MPI_Comm ranks_;
  const int tag_;
  std::atomic<int>& waiting_;
  int rank_ = 0, size_ = 1;
  Direction incoming_, outgoing_;
  std::chrono::nanoseconds nap_{0};
  std::stop_token stop_;
};

}  // namespace ringtrain::allreduce
