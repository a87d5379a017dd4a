// Under mpirun, without a GPU: how ranks come together before their first sum between GPUs.
#include <cstdlib>

#include "allreduce/nccl/nccl_communicator.hpp"
#include "support/job.hpp"
#include "support/recording_nccl.hpp"

using namespace ringtrain;
using test::require;

namespace {

// Two GPUs that every rank sees.
void check_meeting(const allreduce::MpiSession& session) {
  const auto nccl = std::make_shared<RecordingNccl>();
  nccl->gpus = {"0000:01:00.0", "0000:02:00.0"};
  const int rank = session.rank(), size = session.size();

  const int device = allreduce::choose_gpu(session, true, *nccl);
  const auto communicator = allreduce::make_nccl_communicator(session, {.device = device}, nccl);
  communicator->close();

  require(nccl->count(fmt::format("device {}", rank % 2)) == 1, "the GPUs are dealt out in turn");
  const bool alone = size == 1;
  require(nccl->count("get_unique_id") == (rank == 0 && !alone), "the first rank makes the id");
  require(
      nccl->count(fmt::format("init {}/{} id {}", rank, size, RecordingNccl::id_byte)) == !alone,
      "all ranks use the first one's id");
  const char* const host = std::getenv("NCCL_HOSTID");
  require((host != nullptr) == (size > 2), "a host id where GPUs are shared");
  require(host == nullptr || host == fmt::format("host0-r{}", rank), "a host id for each rank");
}

}  // namespace

int main() { test::run_job(check_meeting); }
