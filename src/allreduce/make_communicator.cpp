#include "ringtrain/allreduce/make_communicator.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "allreduce/hierarchical/ring_communicator.hpp"
#include "allreduce/mpi/mpi_check.hpp"
#include "allreduce/mpi/mpi_communicator.hpp"
#include "allreduce/nccl/nccl_api.hpp"
#include "allreduce/nccl/nccl_communicator.hpp"

namespace ringtrain::allreduce {

std::unique_ptr<Communicator> make_communicator(const std::string& kind, const MpiSession& session,
                                                const CommunicatorOptions& options) {
  constexpr std::array<std::string_view, 5> kinds = {"auto", "ring", "mpi", "nccl", "solo"};
  if (std::ranges::find(kinds, kind) == kinds.end())
    throw Error(Exit::usage, "--allreduce " + kind, "choose auto, ring, mpi or nccl");
  const MpiSession::Wait waiting = session.wait();
  if (kind == "nccl") return make_nccl_communicator(session, options.gpu, make_nccl_calls());
  if (kind == "solo" && session.size() > 1)
    throw Error(Exit::usage, "--allreduce solo",
                fmt::format("this job has {} ranks; choose auto", session.size()));
  if (session.size() == 1) return make_solo_communicator();
  if (kind == "mpi") return make_mpi_communicator(session);
  return make_ring_communicator(session, options);
}

LibraryVersions allreduce_libraries() {
  LibraryVersions all = nccl_version();
  all.insert(all.begin(), mpi::version());
  return all;
}

}  // namespace ringtrain::allreduce
