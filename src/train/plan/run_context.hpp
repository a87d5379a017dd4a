#pragma once
#include <string>

#include "ringtrain/allreduce/mpi/session.hpp"
#include "ringtrain/metrics/reporter/reporter.hpp"
#include "ringtrain/monitor/progress.hpp"
#include "train/plan/run_plan.hpp"

namespace ringtrain::train {

/// What all parts of a run share. What it names outlives those that it is passed to.
struct RunContext {
  const RunPlan& plan;
  const allreduce::MpiSession& session;
  monitor::Progress& progress;
  metrics::Reporter& output;  ///< silent but on rank 0

  const config::Options& options() const { return plan.options; }
  void note(const std::string& line) const { output.note(line); }
};

}  // namespace ringtrain::train
