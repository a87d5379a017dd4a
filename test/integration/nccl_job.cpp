// Under mpirun, without a GPU: how ranks come together before their first sum between GPUs.
#include <array>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "allreduce/nccl/nccl_communicator.hpp"
#include "support/job.hpp"
#include "support/recording_nccl.hpp"

using namespace ringtrain;
using test::require;

namespace {

double seconds_of(std::chrono::steady_clock::time_point time) {
  return std::chrono::duration<double>(time.time_since_epoch()).count();
}

// Two GPUs that every rank sees.
void check_meeting(const allreduce::MpiSession& session) {
  const auto nccl = std::make_shared<RecordingNccl>();
  nccl->gpus = {"0000:01:00.0", "0000:02:00.0"};
  const int rank = session.rank(), size = session.size();

  const int device = allreduce::choose_gpu(session, true, {}, *nccl);
  if (rank == size - 1) std::this_thread::sleep_for(std::chrono::milliseconds(200));
  std::array<double, 1> last_ready{seconds_of(std::chrono::steady_clock::now())};
  const auto communicator = allreduce::make_nccl_communicator(session, {.device = device}, nccl);
  session.maximum(last_ready);
  communicator->close();

  require(nccl->count(fmt::format("device {}", rank % 2)) == 1, "the GPUs are dealt out in turn");
  const bool alone = size == 1;
  require(alone || seconds_of(nccl->initialised) >= last_ready[0],
          "NCCL's time begins when the last rank is there");
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
