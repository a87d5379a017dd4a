#include "train/loop/trainer.hpp"

#include <utility>

namespace ringtrain::train {

void Trainer::train() {
  step_watch_.lap();
  while (!is_last()) {
    step();
    if (!parts_.stopping() && parts_.evaluation_due(position())) evaluate();
  }
  drain();
  time_step();
}

void Trainer::step() {
  const auto begin = metrics::Timeline::Clock::now();
  host::StepRequest request;
  for (Hook* const hook : parts_.hooks) hook->before_step(position(), request);
  report(parts_.stepper.step(parts_.loader, request));
  for (Hook* const hook : parts_.hooks) hook->between_steps(*this);
  time_step();
  parts_.progress.record(metrics::Phase::step,
                         {begin, metrics::Timeline::Clock::now(), position().step});
  for (Hook* const hook : parts_.hooks) hook->after_step(position());
}

void Trainer::evaluate() {
  drain();
  time_step();
  for (Hook* const hook : parts_.hooks) hook->before_evaluation(position());
  if (!parts_.stopping()) parts_.evaluate(position());
  step_watch_.lap();  // an evaluation is no part of a step
}

void Trainer::do_untimed(const std::function<void()>& work) {
  drain();
  time_step();
  parts_.progress.pause();
  work();
  step_watch_.lap();
}

void Trainer::drain() {
  while (const auto late = parts_.stepper.finish_step()) report(late);
}

void Trainer::report(const std::optional<StepReport>& done) {
  parts_.communicator.check();
  if (!done) return;
  time_step();
  for (Hook* const hook : parts_.hooks) hook->step_done(*done);
  untimed_ = done;
}

void Trainer::time_step() {
  const auto report = std::exchange(untimed_, std::nullopt);
  if (!report) return;
  const double wall_s = step_watch_.lap();
  for (Hook* const hook : parts_.hooks) hook->step_timed(*report, wall_s);
}

}  // namespace ringtrain::train
