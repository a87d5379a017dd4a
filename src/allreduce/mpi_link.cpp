#include "allreduce/mpi_link.hpp"

#include <sched.h>

#include <algorithm>
#include <thread>

#include "ringtrain/base/error.hpp"

namespace ringtrain {
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

void MpiLink::wait(Direction& direction, Ticket last) {
  while (direction.done < last) {
    int ready = 0;
    mpi::check(MPI_Test(&direction.open.front(), &ready, MPI_STATUS_IGNORE), "MPI_Test");
    if (ready) {
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
// however fast the network is. The kernel's buffers keep the link busy meanwhile.
void MpiLink::rest() {
  using namespace std::chrono_literals;
  nap_ = std::min<std::chrono::nanoseconds>(nap_ * 3 / 2 + 1us, 200us);
  if (nap_ < 10us)
    ::sched_yield();
  else
    std::this_thread::sleep_for(nap_);
}

}  // namespace ringtrain
