#pragma once
#include "ringtrain/allreduce/mpi_session.hpp"
#include "ringtrain/io/writer_process.hpp"
#include "ringtrain/train/options.hpp"
#include "ringtrain/train/stopwatch.hpp"
#include "ringtrain/train/threads.hpp"

namespace ringtrain {

/// Trains (or only evaluates) as `options` say: builds the objects, connects them, runs the loop.
/// `threads` is what this rank already follows; --max-time counts from `since_start`. Collective.
/// Returns the process's exit code; a failure leaves as an exception.
int run(const Options& options, const ThreadPlan& threads, const MpiSession& session,
        WriterProcess& writer, const Stopwatch& since_start);

}  // namespace ringtrain
