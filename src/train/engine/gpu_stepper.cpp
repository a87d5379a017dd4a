#include "train/engine/gpu_stepper.hpp"

#include <algorithm>

#include "ringtrain/base/clock.hpp"
#include "ringtrain/host/signals.hpp"

namespace ringtrain::train {
namespace {

StepOutcome outcome_of(const compute::GpuOutcome& o) {
  const host::StepRequest request = host::agreed_request(o.stop, o.signalled, o.signal);
  return {.loss = o.loss + (o.skipped ? 0 : o.l2_loss),
          .top1 = o.top1,
          .stop = request.stop,
          .signal = request.signal,
          .not_finite = o.not_finite,
          .skipped = o.skipped,
          .loss_scale = o.loss_scale};
}

}  // namespace

GpuStepper::GpuStepper(compute::GpuTraining& training, const StepSettings& settings, Position start,
                       double first_lead, monitor::Progress& progress)
    : Stepper(settings, start), training_(training), first_lead_(first_lead), progress_(progress) {
  training_.refresh();
}

GpuStepper::GpuStepper(std::unique_ptr<compute::GpuTraining> training, const StepSettings& settings,
                       monitor::Progress& progress)
    : Stepper(settings, {}), own_(std::move(training)), training_(*own_), progress_(progress) {}

std::optional<StepReport> GpuStepper::step(io::Loader& loader, const host::StepRequest& request) {
  progress_.begin_step(position().step + 1);
  UnderWay now{{}, learning_rate(), 0, 0};
  for (int micro = 1; micro <= settings().accumulate; ++micro) {
    progress_.enter(monitor::Activity::data);
    const auto begin = metrics::Timeline::Clock::now();
    const Batch* batch = loader.next();
    progress_.enter(monitor::Activity::gpu);  // for a free slot, if steps before are under way
    now.data_wait_s += loader.waited_s();
    Stopwatch watch;
    training_.queue(*batch, {.first = micro == 1,
                             .last = micro == settings().accumulate,
                             .step = static_cast<std::int64_t>(position().step),
                             .learning_rate = now.learning_rate,
                             .sample_weight = settings().sample_weight(),
                             .share = settings().share * settings().sample_weight(),
                             .stop = request.stop,
                             .signal = request.signal});
    const double copy_s = watch.lap();
    now.copy_s += copy_s;
    if (metrics::Timeline* const timeline = progress_.timeline()) {
      timeline->add(metrics::Doing::data_wait, begin, loader.waited_s(), position().step + 1);
      timeline->add(metrics::Doing::copy,
                    metrics::Timeline::Clock::now() - metrics::Timeline::length(copy_s), copy_s,
                    position().step + 1);
    }
  }
  advance();
  now.position = position();
  under_way_.push_back(now);
  return take(ahead);
}

// The GPU tells lengths, not moments: a step ends when the host sees its end, at the latest, and
// begins no earlier than the one before ended.
void GpuStepper::record(const compute::GpuOutcome& o, std::uint64_t step) {
  metrics::Timeline* const timeline = progress_.timeline();
  if (timeline == nullptr) return;
  const std::pair<metrics::Doing, double> parts[] = {{metrics::Doing::forward, o.forward_s},
                                                     {metrics::Doing::backward, o.backward_s},
                                                     {metrics::Doing::communication, o.exposed_s},
                                                     {metrics::Doing::update, o.update_s}};
  double seconds = 0;
  for (const auto& [doing, part] : parts) seconds += part;
  auto at =
      std::max(recorded_, metrics::Timeline::Clock::now() - metrics::Timeline::length(seconds));
  timeline->add(metrics::Doing::step, at, seconds, step, metrics::Row::gpu);
  for (const auto& [doing, part] : parts) {
    timeline->add(doing, at, part, step, metrics::Row::gpu);
    at += metrics::Timeline::length(part);
  }
  recorded_ = at;
}

// What the host waited for or copied counts only as far as the GPU had nothing to do meanwhile.
std::optional<StepReport> GpuStepper::take(int still_under_way) {
  progress_.enter(monitor::Activity::gpu);
  const std::optional<compute::GpuOutcome> o = training_.outcome(still_under_way);
  if (!o) return std::nullopt;
  const UnderWay step = under_way_.front();
  under_way_.pop_front();
  progress_.finish_step();
  record(*o, step.position.step);
  const double data_wait_s = std::min(step.data_wait_s, o->idle_s);
  return StepReport{step.position,
                    step.learning_rate,
                    {.data_wait = data_wait_s,
                     .copy = std::min(step.copy_s, o->idle_s - data_wait_s),
                     .forward = o->forward_s,
                     .backward = o->backward_s,
                     .exposed = o->exposed_s,
                     .update = o->update_s,
                     .sums = first_lead_ * o->backward_s / settings().accumulate + o->exposed_s},
                    outcome_of(*o)};
}

}  // namespace ringtrain::train
