#include "train/hooks/hooks.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "train/loop/trainer.hpp"

namespace ringtrain::train {

// What saves cost an evaluation is no part of a step.
void LogHook::before_step(const Position&, host::StepRequest&) {
  if (parts_.checkpoints) stalled_s_ = parts_.checkpoints->stalled_s();
}

void LogHook::after_step(const Position&) {
  if (parts_.watchdog)
    for (const std::string& text : parts_.watchdog->take_notices())
      parts_.log.event("watchdog", text);
  if (parts_.loader)
    for (const std::string& text : parts_.loader->take_events())
      parts_.log.event("unreadable_sample", text);
}

void LogHook::step_timed(const StepReport& report, double wall_s) {
  parts_.run.progress.enter(metrics::Phase::output);
  const double stalled_s = parts_.checkpoints ? parts_.checkpoints->stalled_s() : 0;
  parts_.run.session.fault_context().at_step(report.position.step);
  const double stall_s = stalled_s - std::exchange(stalled_s_, stalled_s);
  parts_.run.progress.account(parts_.log.step(report, wall_s, stall_s));
}

void LogHook::evaluated(const Position& position, const Evaluation& result) {
  parts_.run.progress.enter(metrics::Phase::output);
  if (result.whole) {
    for (const std::string& text : result.events) parts_.log.event("unreadable_sample", text);
    if (result.valid) parts_.log.evaluation(position.step, result);
  } else {
    // What was seen of the data says nothing about the model.
    parts_.log.event_of_all(
        "evaluation_cut_short",
        fmt::format("the evaluation of step {} ended after {} of {} images; a resumed "
                    "run evaluates that step again",
                    position.step, result.examples, parts_.run.plan.evaluation->size()));
  }
}

// All ranks saw the same sums, so all agree in the same step.
void NonFiniteGuard::step_done(const StepReport& report) {
  const StepOutcome& outcome = report.outcome;
  const std::uint64_t step = report.position.step;
  if (outcome.signal == host::save_refused)  // rank 0 alone knows of the save, and speaks
    end(fmt::format("the training state of step {} may not be saved: {}", step,
                    checkpoints_.refused()));
  if (outcome.skipped && !outcome.not_finite)
    log_.event_of_all("skipped",
                      fmt::format("step {} left out: its gradients overflow; the loss scale "
                                  "is {:g} now",
                                  step, outcome.loss_scale));
  if (!outcome.not_finite) return;
  const std::string text = fmt::format("{} is not finite in step {} (loss {})",
                                       what_is_not_finite(outcome), step, outcome.loss);
  if (run_.options().on_nan == config::OnNan::stop) end(text);
  log_.event_of_all("not_finite", text + "; left out");
}

void NonFiniteGuard::end(const std::string& text) const {
  before_end_();
  const bool skips = run_.options().on_nan == config::OnNan::skip;
  run_.session.fail_together(text + "; a lower --lr or a longer --warmup-epochs may help" +
                                 (skips ? "" : ", --on-nan skip leaves such steps out"),
                             Exit::not_finite);
}

std::string NonFiniteGuard::what_is_not_finite(const StepOutcome& outcome) const {
  const std::string first = engine_.first_non_finite();
  if (!first.empty()) return first;
  return std::isfinite(outcome.loss) ? "a gradient, statistic or update" : "the loss";
}

namespace {

constexpr double seen_stall_s = 1e-5;  // of a step, on a timeline

}  // namespace

void CheckpointHook::before_step(const Position& position, host::StepRequest& request) {
  request.save = checkpoints_.wants({position.step + 1});
  if (checkpoints_.refused().empty()) return;
  request.stop = true;
  request.signal = host::save_refused;
}

void CheckpointHook::step_done(const StepReport& report) {
  if (report.outcome.save)
    saving_shards_.push_back(report.position.step +
                             static_cast<std::uint64_t>(checkpoints_.steps_to_start()));
}

void CheckpointHook::between_steps(Trainer& trainer) {
  const Position& position = trainer.position();
  if (control_.signals().signal() != 0) checkpoints_.save_if_killed();  // before it is told
  const double stalled_s = checkpoints_.stalled_s();
  const auto begin = metrics::Timeline::Clock::now();
  offer(position);
  if (checkpoints_.stalled_s() - stalled_s > seen_stall_s)
    progress_.record(metrics::Phase::checkpoint,
                     {begin, metrics::Timeline::Clock::now(), position.step});
}

// An evaluation may take long: what is saved is safe before.
void CheckpointHook::before_evaluation(const Position&) {
  progress_.enter(metrics::Phase::checkpoint);
  checkpoints_.settle(Deadline(patience_s_));
}

void CheckpointHook::offer(const Position& position) {
  while (!saving_shards_.empty() && saving_shards_.front() <= position.step) {
    saving_shards_.pop_front();
    checkpoints_.save_together(position);
  }
  if (control_.take_save()) checkpoints_.request(position);
  checkpoints_.offer(position);
  if (checkpoints_.longest_save_s() > 0) control_.set_save_s(checkpoints_.longest_save_s());
}

}  // namespace ringtrain::train
