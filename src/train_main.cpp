#include <cstdio>
#include <exception>

#include "ringtrain/allreduce/mpi_session.hpp"
#include "ringtrain/base/error.hpp"
#include "ringtrain/io/writer_process.hpp"
#include "ringtrain/train/options.hpp"
#include "train/run.hpp"

using namespace ringtrain;

int main(int argc, char** argv) {
  const Command command = parse(argc, argv);
  if (command.is_local()) return 0;
  WriterProcess writer = WriterProcess::start_on_first_rank();  // before MPI and any thread
  const MpiSession session(command.options.interface);
  try {
    return run(command.options, session, writer);
  } catch (const std::exception& failure) {
    session.abort(failure);
  }
}
