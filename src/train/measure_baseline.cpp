#include "train/measure_baseline.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "ringtrain/train/stopwatch.hpp"

namespace ringtrain {
namespace {

constexpr int rounds = 7;
constexpr double window_s = 1.0;

// A trainer with a loader of its own that starts at the first sample.
class Runner {
 public:
  Runner(const Plan& plan, std::unique_ptr<Trainer> trainer, const LoaderOptions& options,
         const StopRequest& stop)
      : stop_(stop), trainer_(std::move(trainer)), loader_(*plan.training, options) {}

  // Fewer steps when a rank that takes part is asked to stop.
  double seconds_of(int steps) {
    Stopwatch watch;
    for (int s = 0; s < steps && !stopped_; ++s)
      look_at(trainer_->step(loader_, {stop_.signal() != 0, stop_.signal()}));
    while (const auto report = trainer_->finish_step()) look_at(report);
    return watch.lap();
  }
  bool stopped() const { return stopped_; }

 private:
  void look_at(const std::optional<StepReport>& report) {
    stopped_ = stopped_ || (report && report->outcome.stop);
  }

  const StopRequest& stop_;
  const std::unique_ptr<Trainer> trainer_;
  Loader loader_;
  bool stopped_ = false;
};

// Rank 0's loader for training alone: batches of its own share, and nobody else's.
LoaderOptions alone_options(const Plan& plan) {
  LoaderOptions options = plan.loader(Split::training);
  options.global_batch = plan.share.count;
  options.share = {0, plan.share.count};
  return options;
}

class StateGuard {
 public:
  explicit StateGuard(const TrainingState& state) : state_(state), kept_(state.copy()) {}
  ~StateGuard() { state_.copy_from(kept_); }
  StateGuard(const StateGuard&) = delete;

 private:
  const TrainingState& state_;
  const std::vector<std::vector<float>> kept_;
};

}  // namespace

std::optional<Comparison> measure_baseline(const Plan& plan, Site& site, const MpiSession& session,
                                           const StopRequest& stop) {
  const StateGuard guard(site.state());
  Runner all(plan, site.make_trainer({}), plan.loader(Split::training), stop);
  Runner alone(plan, site.make_lone_trainer(), alone_options(plan), stop);

  all.seconds_of(5);  // buffers and caches fill
  const double step_s = all.seconds_of(5) / 5;
  if (all.stopped()) return std::nullopt;
  const int steps = std::clamp(static_cast<int>(window_s / step_s), 3, 500);
  const int agreed = std::stoi(session.broadcast(std::to_string(steps)));

  std::vector<double> alone_rates, together_rates;
  for (int round = 0; round < rounds; ++round) {
    double seconds = 0;
    if (session.rank() == 0) seconds = alone.seconds_of(agreed);
    session.barrier_asleep();
    alone_rates.push_back(double(agreed) * plan.options.accumulate * plan.share.count / seconds);
    seconds = all.seconds_of(agreed);
    if (all.stopped()) return std::nullopt;
    session.barrier();
    together_rates.push_back(double(agreed) * plan.global_batch / seconds);
  }
  // Rank 0's clock is what counts, so that all ranks come to one verdict.
  for (auto* rates : {&alone_rates, &together_rates})
    session.broadcast(std::as_writable_bytes(std::span(*rates)), 0);
  return compare(alone_rates, together_rates, session.size());
}

}  // namespace ringtrain
