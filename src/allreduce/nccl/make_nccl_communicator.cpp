#include "allreduce/nccl/make_nccl_communicator.hpp"

#include <fmt/ranges.h>

#include <cstdlib>
#include <iterator>
#include <memory>
#include <sstream>

#include "allreduce/nccl/nccl_communicator.hpp"
#include "ringtrain/allreduce/nccl/gpu_assignment.hpp"

namespace ringtrain::allreduce {
namespace {

// What each rank sees, known to all: one line a rank.
std::vector<std::vector<std::string>> visible_to_all(const std::vector<std::string>& mine,
                                                     const MpiSession& session) {
  const auto lines = session.gather(fmt::format("{}", fmt::join(mine, " ")));
  std::istringstream all(session.broadcast(fmt::format("{}\n", fmt::join(lines, "\n"))));
  std::vector<std::vector<std::string>> visible;
  for (std::string line; std::getline(all, line);) {
    std::istringstream words(line);
    visible.emplace_back(std::istream_iterator<std::string>(words),
                         std::istream_iterator<std::string>());
  }
  return visible;
}

NcclId agree_on_id(NcclApi& calls, const MpiSession& session) {
  NcclId id{};
  if (session.size() == 1) return id;
  NcclResult result = NcclResult::success;
  if (session.rank() == 0) result = calls.get_unique_id(id);
  if (result != NcclResult::success) throw Error("ncclGetUniqueId", calls.words(result, nullptr));
  session.broadcast(id, 0);
  return id;
}

}  // namespace

int choose_gpu(const MpiSession& session, bool same_bits, NcclApi& calls) {
  const auto visible = visible_to_all(calls.visible_devices(), session);
  const GpuAssignment place = assign_gpus(session.rank(), session.host_of(), visible, same_bits);
  for (const auto& [name, value] : place.environment) ::setenv(name.c_str(), value.c_str(), 0);
  calls.set_device(place.device);
  return place.device;
}

std::vector<std::string> visible_gpus() try {
  return make_nccl_calls()->visible_devices();
} catch (const Error&) {
  return {};
}

int choose_gpu(const MpiSession& session, bool same_bits) {
  return choose_gpu(session, same_bits, *make_nccl_calls());
}

std::unique_ptr<Communicator> make_nccl_communicator(const MpiSession& session, const GpuSums& sums,
                                                     std::shared_ptr<NcclApi> calls) {
  const NcclId id = agree_on_id(*calls, session);
  const NcclRank me{session.rank(), session.size(), session.host(), sums.device, sums.deadline_s};
  return std::make_unique<NcclCommunicator>(std::move(calls), me, id, sums);
}

}  // namespace ringtrain::allreduce
