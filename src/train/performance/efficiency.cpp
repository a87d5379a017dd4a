#include "train/performance/efficiency.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <ctime>
#include <span>

#include "ringtrain/base/error.hpp"
#include "ringtrain/base/program.hpp"
#include "train/performance/baseline_run.hpp"

namespace ringtrain::train {
namespace {

constexpr std::int64_t least_steps = 30;  // of which the first ten warm up

}  // namespace

Efficiency::Efficiency(const RunContext& run, const TrainingEngine& engine)
    : run_(run),
      speeds_(run.session.rank() == 0 ? cache_folder() : "", "one-rank",
              speed_configuration(run.plan, engine.device())) {}

void Efficiency::keep(const PastRun& speed) {
  if (const std::string why = speeds_.keep(speed); !why.empty())
    run_.note("the speed of one rank is not kept for later runs: " + why);
}

void Efficiency::measure(TrainingEngine& engine, const host::StopSignals& stop) {
  const auto measured = measure_baseline(run_, engine, stop);
  if (!measured) return;  // the first step of training finds the same request
  for (const std::string& line : metrics::speedup_lines(*measured, run_.session.size()))
    run_.note(line);
  run_.output.write(*measured);
  keep(PastRun{measured->alone, measured->alone_phases, std::time(nullptr)});
  const auto& least = run_.options().require_efficiency;
  if (least && measured->efficiency < *least)
    run_.session.fail_together(
        fmt::format("the efficiency is {:.3f}, --require-efficiency asks for {}",
                    measured->efficiency, *least),
        Exit::inefficient);
}

void Efficiency::keep_own(const metrics::StepTimes& run) {
  if (run_.session.size() > 1 || run.steps() < least_steps) return;
  metrics::PhaseSeconds phases = run.total();
  for (double& seconds : phases.seconds) seconds /= double(run.steps());
  keep(PastRun{run.throughput(), phases, std::time(nullptr)});
}

void Efficiency::recall(const Position& start) {
  if (run_.session.size() == 1 || run_.plan.done(start)) return;
  recalled_ = speeds_.find();
  is_recalled_ = run_.session.broadcast(recalled_ ? "found" : "") == "found";
  if (recalled_) tell(*recalled_);
  if (run_.options().require_efficiency && !is_recalled_)
    run_.session.fail_together(
        "--require-efficiency: no earlier run has kept what one rank alone reaches with this "
        "model, batch, device and build; add --baseline, or train with one rank first",
        Exit::usage);
}

void Efficiency::tell(const PastRun& speed) {
  const double age_s = std::max(0.0, std::difftime(std::time(nullptr), speed.measured));
  run_.note(fmt::format("one rank alone: {:.1f} +- {:.1f} examples/sec, measured {} ago ({})",
                        speed.examples_per_second.median, speed.examples_per_second.deviation,
                        metrics::duration_words(age_s), speeds_.file().string()));
}

std::optional<double> Efficiency::alone() const {
  if (!recalled_) return std::nullopt;
  return recalled_->examples_per_second.median;
}

// Ranks train the same number of steps.
void Efficiency::require(const metrics::StepTimes& run) const {
  if (!is_recalled_ || !run_.options().require_efficiency) return;
  if (run.steps() < least_steps)
    return run_.note(
        fmt::format("--require-efficiency: not judged, as there were {} steps; {} are the least",
                    run.steps(), least_steps));
  const double examples_per_second = run.throughput().median;
  double efficiency = recalled_ ? examples_per_second / (run_.session.size() * *alone()) : 0;
  run_.session.broadcast(std::as_writable_bytes(std::span(&efficiency, 1)), 0);
  if (efficiency < *run_.options().require_efficiency)
    run_.session.fail_together(
        fmt::format("the efficiency was {:.3f} of one rank alone, --require-efficiency asks for {}",
                    efficiency, *run_.options().require_efficiency),
        Exit::inefficient);
}

}  // namespace ringtrain::train
