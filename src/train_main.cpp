#include <fmt/core.h>

#include <exception>

#include "ringtrain/allreduce/launch.hpp"
#include "ringtrain/allreduce/mpi_session.hpp"
#include "ringtrain/base/error.hpp"
#include "ringtrain/io/writer_process.hpp"
#include "ringtrain/train/options.hpp"
#include "ringtrain/train/threads.hpp"
#include "train/local_commands.hpp"
#include "train/run.hpp"

using namespace ringtrain;

namespace {

// Before MPI is up, each rank fails by itself, and alike: only the first one says why.
int fail_before_mpi(const Error& failure, int rank) {
  if (rank == 0) write_stderr(fmt::format("train: {}\n", failure.what()));
  return static_cast<int>(failure.code());
}

int run_job(const Command& command, char** argv) {
  const ThreadPlan threads = plan_threads(find_place(command.options.threads));
  apply_threads(threads, argv);
  WriterProcess writer = WriterProcess::start_on_first_rank();  // before MPI and any thread
  const MpiSession session(command.options.interface);
  try {
    return run(command.options, threads, session, writer);
  } catch (const std::exception& failure) {
    session.abort(failure);
  }
}

}  // namespace

int main(int argc, char** argv) {
  int rank = 0;
  try {
    rank = launch_from_environment().rank;
    const Command command = parse(argc, argv);
    if (!command.is_local()) return run_job(command, argv);
    if (rank == 0) run_local(command);
    return 0;
  } catch (const Error& failure) {
    return fail_before_mpi(failure, rank);
  } catch (const std::exception& failure) {
    return fail_before_mpi(Error("train", failure.what()), rank);
  }
}
