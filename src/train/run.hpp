#pragma once
#include "ringtrain/allreduce/mpi_session.hpp"
#include "ringtrain/io/writer_process.hpp"
#include "ringtrain/train/options.hpp"

namespace ringtrain {

/// Trains (or only evaluates) as `options` say: builds the objects, connects them, runs the loop.
/// Collective. Returns the process's exit code; a failure leaves as an exception.
int run(const Options& options, const MpiSession& session, WriterProcess& writer);

}  // namespace ringtrain
