#include "train/loop/step_logger.hpp"

#include <fmt/ranges.h>

#include <sstream>
#include <utility>

namespace ringtrain::train {
namespace {

std::string to_text(const metrics::PhaseSeconds& phases) {
  return fmt::format("{}", fmt::join(phases.seconds, " "));
}

metrics::PhaseSeconds phases_from(const std::string& text) {
  std::istringstream words(text);
  metrics::PhaseSeconds phases;
  for (double& seconds : phases.seconds) words >> seconds;
  return phases;
}

}  // namespace

StepLogger::StepLogger(metrics::Reporter& output, const RunPlan& plan, Position start, int rank,
                       const std::vector<std::string>& hosts, monitor::SlowdownReporter::Ask ask)
    : output_(output),
      plan_(plan),
      start_(start),
      last_step_(plan.last_step(start)),
      rank_(rank),
      ask_(std::move(ask)),
      saves_(start.step) {
  if (hosts.empty()) return;
  imbalance_.emplace(hosts, monitor::ImbalanceDetector::logged);
  stragglers_.emplace(hosts, monitor::ImbalanceDetector::reported);
  slowdowns_.emplace(plan.options.slow_below, hosts, ask_);
}

double StepLogger::epoch(const Position& position) const {
  return double(position.samples) / double(plan_.training->size());
}

double StepLogger::seconds_left(std::uint64_t step) const {
  const auto done = static_cast<double>(step - start_.step);
  return step < last_step_ && done > 0 ? seconds_ / done * double(last_step_ - step) : 0;
}

metrics::PhaseSeconds StepLogger::step(const StepReport& report, double wall_seconds,
                                       double checkpoint_seconds) {
  metrics::PhaseSeconds phases = report.seconds;
  phases[metrics::Phase::checkpoint] += checkpoint_seconds;
  phases = times_.add_step(phases, wall_seconds, plan_.global_batch, report.sums_s);
  if (slowdowns_) tell(slowdowns_->step(wall_seconds, plan_.global_batch, checkpoint_seconds));
  seconds_ += wall_seconds;
  compare_ranks();

  const std::uint64_t step = report.position.step;
  if (step % static_cast<std::uint64_t>(plan_.options.log_every) == 0 || step == last_step_)
    tell(report);
  output_.progress({.step = static_cast<std::int64_t>(step),
                    .first_step = static_cast<std::int64_t>(start_.step),
                    .total_steps = static_cast<std::int64_t>(last_step_),
                    .elapsed_seconds = seconds_,
                    .examples_per_second = rate_,
                    .loss = report.outcome.loss,
                    .speed = slowdowns_ ? slowdowns_->speed() : std::nullopt});
  return phases;
}

void StepLogger::tell(const monitor::SlowdownReporter::Report& change) {
  if (change.text.empty()) return;
  event(change.what, change.text);
  links_suspected_ = links_suspected_ || change.links;
}

// In less time, a busy host looks slow. A slow-down names its rank itself.
void StepLogger::compare_ranks() {
  constexpr double every_s = 30;
  if (!stragglers_ || seconds_ < compared_s_ + every_s || slowdowns_->suspects()) return;
  compared_s_ = seconds_;
  ask_(accounts_);
  if (const auto window = stragglers_->compare(accounts_))
    for (const std::string& sentence : window->events) event("watchdog", sentence);
}

// Since they were last told, if there is enough news.
std::optional<metrics::PhaseSpread> StepLogger::differences() {
  if (!imbalance_) return std::nullopt;
  ask_(accounts_);
  auto window = imbalance_->compare(accounts_);
  return window ? std::optional(std::move(window->spread)) : std::nullopt;
}

void StepLogger::tell(const StepReport& report) {
  const metrics::StepTimes::Mean mean = times_.take_mean();
  rate_ = mean.examples_per_second;
  output_.write(metrics::StepRecord{
      .step = static_cast<std::int64_t>(report.position.step),
      .epoch = epoch(report.position),
      .loss = report.outcome.loss,
      .l2 = report.outcome.l2,
      .epochs = plan_.epochs,
      .seconds_left = seconds_left(report.position.step),
      .learning_rate = report.learning_rate,
      .examples_per_second = mean.examples_per_second,
      .seconds_per_batch = mean.seconds,
      .phases = mean.phases,
      .ranks = differences(),
      .sums = reached(mean.sums_seconds, mean.phases[metrics::Phase::communication], mean.seconds),
      .speed = slowdowns_ ? slowdowns_->speed() : std::nullopt});
}

std::optional<metrics::SumsReached> StepLogger::reached(double sums_s, double exposed_s,
                                                        double step_s) const {
  if (plan_.ranks == 1 || step_s == 0) return std::nullopt;
  return metrics::SumsReached{metrics::bus_bandwidth(plan_.sum_bytes(), sums_s, plan_.ranks),
                              exposed_s / step_s};
}

void StepLogger::evaluation(std::uint64_t step, const Evaluation& result) {
  accuracy_ = {.step = static_cast<std::int64_t>(step),
               .top1 = result.top1,
               .top5 = result.top5,
               .loss = result.loss,
               .examples = static_cast<std::int64_t>(result.examples),
               .best = best_};
  output_.write(*accuracy_);
}

void StepLogger::save(const io::SaveEvent& event, double stall_seconds) {
  switch (event.kind) {
    case io::SaveEvent::Kind::saved:
      if (const std::string end = saves_.good(event); !end.empty()) this->event("save_works", end);
      checkpoint_file_ = event.file;
      output_.write(metrics::CheckpointRecord{.step = static_cast<std::int64_t>(event.step),
                                              .file = event.file,
                                              .bytes = event.bytes,
                                              .seconds = event.seconds,
                                              .stall_seconds = stall_seconds});
      return;
    case io::SaveEvent::Kind::failed:
      return trouble("save_failed", event);
    case io::SaveEvent::Kind::skipped:
      return trouble("save_skipped", event);
    case io::SaveEvent::Kind::slow:
      return trouble("save_slow", event);
    case io::SaveEvent::Kind::replaced:
      return this->event("writer_replaced", event.text);
    case io::SaveEvent::Kind::alone:
      return this->event("fork_server_lost", event.text);
    case io::SaveEvent::Kind::lost:
      return trouble("writer_lost", event);
    case io::SaveEvent::Kind::moved:
      return this->event("folder_moved", event.text);
    case io::SaveEvent::Kind::back:
      return this->event("folder_back", event.text);
    case io::SaveEvent::Kind::note:
      return output_.note(event.text);
  }
}

void StepLogger::trouble(const std::string& what, const io::SaveEvent& event) {
  if (const std::string text = saves_.trouble(event); !text.empty()) this->event(what, text);
}

Error StepLogger::with_last_good(const Error& failure) const {
  return Error(failure.code(), failure.what(), saves_.last_good())
      .of_kind(std::string(failure.kind()), failure.details());
}

void StepLogger::finish(const Position& end, const SaveCounts& saves,
                        const allreduce::MpiSession& session, const Expected& expected) {
  metrics::Summary summary;
  summary.saved = saves.saved;
  summary.failed = saves.failed;
  summary.skipped = saves.skipped;
  for (const std::string& text : session.gather(to_text(times_.total())))
    summary.ranks.push_back(phases_from(text));
  summary.steps = static_cast<std::int64_t>(end.step - start_.step);
  summary.examples = static_cast<std::int64_t>(end.samples - start_.samples);
  summary.epochs = epoch(end);
  summary.seconds = seconds_;
  summary.throughput = times_.throughput();
  summary.accuracy = accuracy_;
  summary.checkpoint_file = checkpoint_file_;
  if (const auto& last = saves_.last())
    summary.checkpoint = {static_cast<std::int64_t>(last->first), last->second.elapsed()};
  metrics::EndRecord record{.steps = summary.steps,
                            .examples = summary.examples,
                            .seconds = seconds_,
                            .examples_per_second = summary.throughput.median};
  if (accuracy_) record.top1 = accuracy_->top1;
  record.best = best_;
  record.ranks = summary.ranks;
  const auto steps = double(std::max<std::int64_t>(1, times_.steps()));
  record.sums = reached(times_.total_sums_seconds() / steps,
                        times_.total()[metrics::Phase::communication] / steps, seconds_ / steps);
  record.expected_step_s = expected.step_s;
  if (expected.alone)
    record.efficiency = summary.throughput.median / (plan_.ranks * *expected.alone);
  summary.sums = record.sums;
  summary.efficiency = record.efficiency;
  if (expected.step_s && summary.throughput.median > 0)
    summary.steps_s = {*expected.step_s, plan_.global_batch / summary.throughput.median};
  output_.write(record);
  output_.note("\n" + metrics::summary_table(summary));
}

}  // namespace ringtrain::train
