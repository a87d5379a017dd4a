#include "ringtrain/allreduce/make_communicator.hpp"

#include <fmt/core.h>

#include "allreduce/communicators.hpp"

namespace ringtrain {

std::unique_ptr<Communicator> make_communicator(const std::string& kind, const MpiSession& session,
                                                const CommunicatorOptions& options) {
  const bool known = kind == "auto" || kind == "ring" || kind == "mpi" || kind == "solo";
  if (!known) throw Error(Exit::usage, "--allreduce " + kind, "choose auto, ring or mpi");
  if (kind == "solo" && session.size() > 1)
    throw Error(Exit::usage, "--allreduce solo",
                fmt::format("this job has {} ranks; choose auto", session.size()));
  if (session.size() == 1) return make_solo_communicator();
  if (kind == "mpi") return make_mpi_communicator(session);
  return make_ring_communicator(session, options);
}

}  // namespace ringtrain
