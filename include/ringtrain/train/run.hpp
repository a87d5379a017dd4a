#pragma once
// Room `train`: the training loop and what is set up for it. run() makes a plan (`plan`), checks it
// with the other ranks (`preflight`), makes an engine for this rank's device (`engine`, `state`),
// and trains: `loop` has the loop, `hooks` what hangs on it, `checkpoint` when state is saved and
// resumed, `performance` what a run's speed is compared with.
//
// Threads: the main thread.
//
// Collective: all of it, unless a contract says otherwise.
#include "ringtrain/allreduce/mpi/session.hpp"
#include "ringtrain/base/clock.hpp"
#include "ringtrain/config/options.hpp"
#include "ringtrain/host/threads.hpp"
#include "ringtrain/io/checkpoint_writer/writer_process.hpp"

namespace ringtrain::train {

/// Trains (or only evaluates) as `options` say: builds the objects, connects them, runs the loop.
/// `threads` is what this rank already follows; --max-time counts from `since_start`. Collective.
/// Returns the process's exit code; a failure leaves as an exception.
int run(const config::Options& options, const host::ThreadPlan& threads,
        const allreduce::MpiSession& session, io::WriterProcess& writer,
        const Stopwatch& since_start);

/// Does what needs no other rank: --help, --version, --print-config, --model list, --print-model,
/// --inspect, --plan, --pack, --export.
/// Prints to standard output; a failure leaves as an Error.
void run_local(const config::Command& command);

/// The text of `--model list`: sizes, then recipes.
std::string model_table();

}  // namespace ringtrain::train
