#include "train/performance/sum_tuner.hpp"

#include <algorithm>

#include "ringtrain/base/statistics.hpp"
#include "ringtrain/metrics/scaling/ring_text.hpp"

namespace ringtrain::train {
namespace {

constexpr double worth_it = 0.95;  // of the first plan's time
constexpr double mostly = 0.75;    // of the rounds

}  // namespace

SumTrials::SumTrials(std::vector<allreduce::SumPlan> plans)
    : plans_(std::move(plans)), seconds_(plans_.size()) {
  expects(!plans_.empty(), "SumTrials: a plan at least");
}

void SumTrials::see(double step_s) {
  seconds_[steps_++ % plans_.size()].push_back(step_s);
  spent_s_ += step_s;
}

std::optional<std::size_t> SumTrials::rounds() const {
  if (steps_ % plans_.size() != 0) return std::nullopt;
  return steps_ / plans_.size();
}

// The steps of a round are neighbours, so what else the machines do is the same for most.
std::size_t SumTrials::best() const {
  const std::vector<double>& first = seconds_.front();
  std::size_t best = 0;
  double least = worth_it;
  for (std::size_t p = 1; p < plans_.size(); ++p) {
    std::vector<double> ratios;
    for (std::size_t round = 0; round < seconds_[p].size(); ++round)
      ratios.push_back(seconds_[p][round] / first[round]);
    const auto faster = std::ranges::count_if(ratios, [](double ratio) { return ratio < 1; });
    const double ratio = median_of(ratios);
    if (ratio >= least || double(faster) < mostly * double(ratios.size())) continue;
    least = ratio;
    best = p;
  }
  return best;
}

std::vector<allreduce::TriedPlan> SumTrials::tried() const {
  std::vector<allreduce::TriedPlan> tried;
  for (std::size_t p = 0; p < plans_.size(); ++p)
    tried.push_back({plans_[p], median_of(seconds_[p])});
  return tried;
}

SumTuner::SumTuner(TrainingEngine& engine, const allreduce::MpiSession& session,
                   metrics::Reporter& output, bool report)
    : engine_(engine),
      session_(session),
      output_(output),
      report_(report),
      trials_(engine.sum_plans()) {}

bool SumTuner::begin_step() {
  if (seen_ < warm_up) return true;
  if (trials_.rounds().value_or(0) >= least_rounds && enough()) {
    settle();
    return false;
  }
  engine_.set_sum_plan(trials_.plan());
  return true;
}

void SumTuner::see(double step_s) {
  if (seen_++ >= warm_up) trials_.see(step_s);
}

// As rank 0 has it.
bool SumTuner::enough() const {
  double said = trials_.spent_s() >= enough_s || *trials_.rounds() >= most_rounds ? 1 : 0;
  session_.broadcast(std::as_writable_bytes(std::span(&said, 1)), 0);
  return said != 0;
}

void SumTuner::settle() {
  std::size_t best = trials_.best();
  session_.broadcast(std::as_writable_bytes(std::span(&best, 1)), 0);
  engine_.set_sum_plan(trials_.plan_of(report_ ? 0 : best));
  for (const std::string& line :
       metrics::told_trials(trials_.tried(), best, trials_.steps(), report_))
    output_.note(line);
}

}  // namespace ringtrain::train
