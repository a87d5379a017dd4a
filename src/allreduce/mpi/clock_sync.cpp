#include "ringtrain/allreduce/mpi/clock_sync.hpp"

#include <algorithm>
#include <chrono>
#include <vector>

#include "allreduce/mpi/mpi_check.hpp"

namespace ringtrain::allreduce {

namespace {

constexpr int rounds = 40;  // one of them at least meets no other traffic
constexpr int tag = 7;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void answer(int rank) {
  for (int round = 0; round < rounds; ++round) {
    mpi::check(MPI_Recv(nullptr, 0, MPI_BYTE, rank, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE),
               "MPI_Recv");
    const double read = now();
    mpi::check(MPI_Send(&read, 1, MPI_DOUBLE, rank, tag, MPI_COMM_WORLD), "MPI_Send");
  }
}

ClockProbe ask_rank_0() {
  ClockProbe probe{.asked = now()};
  mpi::check(MPI_Send(nullptr, 0, MPI_BYTE, 0, tag, MPI_COMM_WORLD), "MPI_Send");
  mpi::check(MPI_Recv(&probe.read, 1, MPI_DOUBLE, 0, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE),
             "MPI_Recv");
  probe.answered = now();
  return probe;
}

}  // namespace

// One rank after the other, so that nobody's question stands in line behind another's. The first
// question of a rank waits for its turn; its round trip is never the shortest.
ClockOffset measure_clock_offset(const MpiSession& session) {
  const MpiSession::Wait waiting = session.wait();
  const auto& host_of = session.host_of();
  if (session.rank() == 0) {
    for (int rank = 1; rank < session.size(); ++rank)
      if (host_of[static_cast<std::size_t>(rank)] != host_of[0]) answer(rank);
    return {now()};
  }
  if (host_of[static_cast<std::size_t>(session.rank())] == host_of[0]) return {now()};
  std::vector<ClockProbe> probes;
  for (int round = 0; round < rounds; ++round) probes.push_back(ask_rank_0());
  return offset_from(probes);
}

ClockOffset offset_from(std::span<const ClockProbe> probes) {
  expects(!probes.empty(), "offset_from: at least one probe");
  const ClockProbe best = *std::ranges::min_element(
      probes, {}, [](const ClockProbe& p) { return p.answered - p.asked; });
  const double middle = (best.asked + best.answered) / 2;
  return {middle, best.read - middle, (best.answered - best.asked) / 2};
}

double by_other_clock(double moment, const ClockOffset& before, const ClockOffset& after) {
  const double apart = after.at - before.at;
  const double share = apart > 0 ? (moment - before.at) / apart : 0;
  return moment + before.offset + share * (after.offset - before.offset);
}

}  // namespace ringtrain::allreduce
