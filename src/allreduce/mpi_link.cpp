#include "allreduce/mpi_link.hpp"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "ringtrain/base/error.hpp"

namespace ringtrain {
namespace {

// Between two looks at the network: nothing for the first microseconds, in which a fast network
// answers, then naps that grow with the wait. Sockets buffer megabytes, so a nap costs no
// bandwidth.
class Patience {
 public:
  void wait() {
    using namespace std::chrono_literals;
    const auto waited = Clock::now() - begin_;
    if (waited < 20us)
      ::sched_yield();
    else
      std::this_thread::sleep_for(std::clamp<Clock::duration>(waited / 4, 10us, 100us));
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point begin_ = Clock::now();
};

}  // namespace

MpiLink::MpiLink(MPI_Comm ranks, std::stop_token stop) : ranks_(ranks), stop_(std::move(stop)) {
  mpi::check(MPI_Comm_rank(ranks, &rank_), "MPI_Comm_rank");
  mpi::check(MPI_Comm_size(ranks, &size_), "MPI_Comm_size");
}

RingLink::Ticket MpiLink::receive(std::span<float> in) {
  MPI_Request& request = incoming_.open.emplace_back(MPI_REQUEST_NULL);
  mpi::check(MPI_Irecv(in.data(), static_cast<int>(in.size()), MPI_FLOAT,
                       (rank_ + size_ - 1) % size_, 0, ranks_, &request),
             "MPI_Irecv");
  return incoming_.started();
}

RingLink::Ticket MpiLink::send(std::span<const float> out) {
  MPI_Request& request = outgoing_.open.emplace_back(MPI_REQUEST_NULL);
  mpi::check(MPI_Isend(out.data(), static_cast<int>(out.size()), MPI_FLOAT, (rank_ + 1) % size_, 0,
                       ranks_, &request),
             "MPI_Isend");
  return outgoing_.started();
}

void MpiLink::Direction::wait(Ticket last, const std::stop_token& stop) {
  Patience patience;
  while (done < last) {
    int ready = 0;
    mpi::check(MPI_Test(&open.front(), &ready, MPI_STATUS_IGNORE), "MPI_Test");
    if (ready) {
      open.pop_front();
      ++done;
      patience = {};
      continue;
    }
    if (stop.stop_requested()) throw Error("sum between hosts", "given up");
    patience.wait();
  }
}

}  // namespace ringtrain
