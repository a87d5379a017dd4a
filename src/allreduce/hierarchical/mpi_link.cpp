#include "allreduce/hierarchical/mpi_link.hpp"

#include <fmt/core.h>
#include <sched.h>
#include <sys/prctl.h>

#include <algorithm>
#include <limits>
#include <thread>

#include "ringtrain/base/error.hpp"

namespace ringtrain::allreduce {
namespace {

constexpr std::size_t most_elements = std::numeric_limits<int>::max();

class Count {
 public:
  explicit Count(std::atomic<int>& count) : count_(count) { ++count_; }
  ~Count() { --count_; }
  Count(const Count&) = delete;

 private:
  std::atomic<int>& count_;
};

// MPI itself refuses only messages that are longer than expected.
void check_length(const MPI_Status& status, int expected) {
  int count = 0;
  mpi::check(MPI_Get_count(&status, MPI_FLOAT, &count), "MPI_Get_count");
  if (count != expected)
    throw Error("sum between hosts", fmt::format("a message of {} elements came, not of {}: ranks "
                                                 "sum buffers of different sizes",
                                                 count, expected));
}

}  // namespace

MpiLink::MpiLink(MPI_Comm ranks, std::stop_token stop, int tag, std::atomic<int>& waiting)
    : ranks_(ranks), tag_(tag), waiting_(waiting), stop_(std::move(stop)) {
  // Else each nap takes 50 us longer: of this thread, and of those that it starts from now on.
  ::prctl(PR_SET_TIMERSLACK, 1);
  mpi::check(MPI_Comm_rank(ranks, &rank_), "MPI_Comm_rank");
  mpi::check(MPI_Comm_size(ranks, &size_), "MPI_Comm_size");
}

RingLink::Ticket MpiLink::receive(std::span<float> in) {
  expects(in.size() <= most_elements, "MpiLink: a message that MPI can count");
  Message& message = incoming_.open.emplace_back(MPI_REQUEST_NULL, static_cast<int>(in.size()));
  mpi::check(MPI_Irecv(in.data(), message.count, MPI_FLOAT, (rank_ + size_ - 1) % size_, tag_,
                       ranks_, &message.request),
             "MPI_Irecv");
  return incoming_.started();
}

RingLink::Ticket MpiLink::send(std::span<const float> out) {
  expects(out.size() <= most_elements, "MpiLink: a message that MPI can count");
  Message& message = outgoing_.open.emplace_back(MPI_REQUEST_NULL, static_cast<int>(out.size()));
  mpi::check(MPI_Isend(out.data(), message.count, MPI_FLOAT, (rank_ + 1) % size_, tag_, ranks_,
                       &message.request),
             "MPI_Isend");
  return outgoing_.started();
}

void MpiLink::wait(Direction& direction, Ticket last) {
  const Count one_more(waiting_);
  while (direction.done < last) {
    int ready = 0;
    MPI_Status status;
    mpi::check(MPI_Test(&direction.open.front().request, &ready, &status), "MPI_Test");
    if (ready) {
      if (&direction == &incoming_) check_length(status, direction.open.front().count);
      direction.open.pop_front();
      ++direction.done;
      nap_ /= 2;
      continue;
    }
    if (stop_.stop_requested()) throw Error("sum between hosts", "given up");
    rest();
  }
}

// A look at the network costs some microseconds of a core that could compute. Longer naps after
// each look in vain, shorter ones after each message: so there are about two looks a message,
// however fast the network is. The kernel's buffers keep the link busy meanwhile. A look moves
// the messages of all links, so those that wait share the looks.
void MpiLink::rest() {
  using namespace std::chrono_literals;
  nap_ = std::min<std::chrono::nanoseconds>(nap_ * 3 / 2 + 1us, waiting_.load() * 200us);
  if (nap_ < 10us)
    ::sched_yield();
  else
    std::this_thread::sleep_for(nap_);
}

}  // namespace ringtrain::allreduce
