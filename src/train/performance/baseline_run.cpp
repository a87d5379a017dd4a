#include "train/performance/baseline_run.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <exception>
#include <memory>

#include "ringtrain/base/clock.hpp"

namespace ringtrain::train {
namespace {

constexpr int window_rounds = 7;
constexpr double window_s = 1.0;

// A trainer with a loader of its own that starts at the first sample.
class Runner {
 public:
  Runner(const RunPlan& plan, std::unique_ptr<Stepper> trainer, const io::LoaderOptions& options,
         const host::StopSignals& stop)
      : stop_(stop), trainer_(std::move(trainer)), loader_(*plan.training, options) {}

  // Fewer steps when a rank that takes part is asked to stop.
  double seconds_of(int steps) {
    const Stopwatch watch;
    step_watch_.lap();
    for (int s = 0; s < steps && !stopped_; ++s)
      look_at(trainer_->step(loader_, {stop_.signal() != 0, stop_.signal()}));
    while (const auto report = trainer_->finish_step()) look_at(report);
    return watch.elapsed();
  }
  bool stopped() const { return stopped_; }
  // From here on steps count.
  void warmed_up() {
    times_ = {};
    step_s_.clear();
  }
  metrics::Windows windows(std::vector<double> rates) const {
    metrics::Windows all{std::move(rates), step_s_, times_.total()};
    for (double& seconds : all.phases.seconds) seconds /= double(times_.steps());
    return all;
  }

 private:
  void look_at(const std::optional<StepReport>& report) {
    if (!report) return;
    stopped_ = stopped_ || report->outcome.stop;
    step_s_.push_back(step_watch_.lap());
    times_.add_step(report->seconds, step_s_.back(), 0);
  }

  const host::StopSignals& stop_;
  const std::unique_ptr<Stepper> trainer_;
  io::Loader loader_;
  bool stopped_ = false;
  Stopwatch step_watch_;
  metrics::StepTimes times_;
  std::vector<double> step_s_;
};

// One rank's numbers are all ranks', so that they come to one verdict.
metrics::ScalingResult compare_alike(metrics::Windows alone, metrics::Windows together,
                                     const allreduce::MpiSession& session) {
  for (metrics::Windows* windows : {&alone, &together})
    session.broadcast(std::as_writable_bytes(std::span(windows->rates)), 0);
  session.broadcast(std::as_writable_bytes(std::span(alone.phases.seconds)), 0);
  session.sum(together.phases.seconds);
  for (double& seconds : together.phases.seconds) seconds /= session.size();
  return metrics::compare(alone, together, session.size());
}

// The comparison; nullopt when a rank was asked to stop.
std::optional<metrics::ScalingResult> compare_windows(const RunPlan& plan,
                                                      const allreduce::MpiSession& session,
                                                      Runner& all, std::optional<Runner>& alone) {
  all.seconds_of(5);  // buffers and caches fill
  const double step_s = all.seconds_of(5) / 5;
  if (all.stopped()) return std::nullopt;
  const int steps = std::clamp(static_cast<int>(window_s / step_s), 3, 500);
  const int agreed = std::stoi(session.broadcast(std::to_string(steps)));
  all.warmed_up();
  if (alone) {
    alone->seconds_of(3);
    alone->warmed_up();
  }

  std::vector<double> alone_rates, together_rates;
  for (int round = 0; round < window_rounds; ++round) {
    const double alone_s = alone ? alone->seconds_of(agreed) : 1;
    session.barrier_asleep();
    alone_rates.push_back(double(agreed) * plan.options.accumulate * plan.share.count / alone_s);
    const double seconds = all.seconds_of(agreed);
    if (all.stopped()) return std::nullopt;
    session.barrier();
    together_rates.push_back(double(agreed) * plan.global_batch / seconds);
  }
  return compare_alike(alone ? alone->windows(alone_rates) : metrics::Windows{alone_rates},
                       all.windows(together_rates), session);
}

}  // namespace

std::optional<metrics::ScalingResult> measure_baseline(const RunContext& run,
                                                       TrainingEngine& engine,
                                                       const host::StopSignals& stop) {
  const RunPlan& plan = run.plan;
  // The stepper first: what compression keeps of a checkpoint comes to it there.
  Runner all(plan, engine.make_stepper({}), plan.loader(io::Split::training), stop);
  const auto kept = engine.state().copy();
  std::optional<Runner> alone;
  try {
    if (run.session.rank() == 0)
      alone.emplace(plan, engine.make_solo_stepper(), plan.lone_loader(), stop);
    auto result = compare_windows(plan, run.session, all, alone);
    engine.state().copy_from(kept);
    return result;
  } catch (const std::exception& failure) {
    run.session.abort(failure);  // while the runners live: what they have under way may never end
  }
}

}  // namespace ringtrain::train
