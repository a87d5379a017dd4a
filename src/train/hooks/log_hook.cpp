#include "train/hooks/log_hook.hpp"

#include <fmt/core.h>

#include <utility>

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
  parts_.progress.enter(metrics::Phase::output);
  const double stalled_s = parts_.checkpoints ? parts_.checkpoints->stalled_s() : 0;
  const bool saving = parts_.checkpoints && parts_.checkpoints->saving();
  parts_.session.fault_context().at_step(report.position.step);
  const double stall_s = stalled_s - std::exchange(stalled_s_, stalled_s);
  parts_.progress.account(parts_.log.step(report, wall_s, stall_s, saving));
}

void LogHook::evaluated(const Position& position, const Evaluation& result) {
  parts_.progress.enter(metrics::Phase::output);
  if (result.whole) {
    for (const std::string& text : result.events) parts_.log.event("unreadable_sample", text);
    parts_.log.evaluation(position.step, result);
  } else {
    // What was seen of the data says nothing about the model.
    parts_.log.event_of_all(
        "evaluation_cut_short",
        fmt::format("the evaluation of step {} ended after {} of {} images; a resumed "
                    "run evaluates that step again",
                    position.step, result.examples, parts_.plan.evaluation->size()));
  }
}

}  // namespace ringtrain::train
