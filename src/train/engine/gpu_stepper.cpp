#include "train/engine/gpu_stepper.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "ringtrain/base/statistics.hpp"
#include "ringtrain/host/signals.hpp"
#include "ringtrain/monitor/phase_scope.hpp"

namespace ringtrain::train {
namespace {

StepOutcome outcome_of(const compute::GpuOutcome& o) {
  const host::StepRequest request = host::agreed_request(o.stop, o.signalled, o.signal);
  const double l2 = o.skipped ? 0 : o.l2_loss;
  return {.loss = without_nan_sign(o.loss + l2),
          .l2 = l2,
          .top1 = o.top1,
          .stop = request.stop,
          .signal = request.signal,
          .save = o.save > 0,
          .measure_links = o.measure_links > 0,
          .unreadable = o.unreadable > 0,
          .not_finite = o.not_finite,
          .skipped = o.skipped,
          .loss_scale = o.loss_scale};
}

// In their order.
std::array<std::pair<metrics::Phase, double>, 4> parts_of(const compute::GpuOutcome& o) {
  return {{{metrics::Phase::forward, o.forward_s},
           {metrics::Phase::backward, o.backward_s},
           {metrics::Phase::communication, o.exposed_s},
           {metrics::Phase::update, o.update_s}}};
}

}  // namespace

GpuStepper::GpuStepper(compute::GpuTraining& training, const StepSettings& settings, Position start,
                       double first_lead, int ahead, monitor::Progress& progress)
    : Stepper(settings, start),
      training_(training),
      first_lead_(first_lead),
      ahead_(ahead),
      progress_(progress) {
  training_.refresh();
}

GpuStepper::GpuStepper(std::unique_ptr<compute::GpuTraining> training, const StepSettings& settings,
                       monitor::Progress& progress)
    : Stepper(settings, {}), own_(std::move(training)), training_(*own_), progress_(progress) {}

std::optional<StepReport> GpuStepper::step(io::Loader& loader, const host::StepRequest& request) {
  progress_.begin_step(position().step + 1);
  UnderWay now{{}, learning_rate()};
  for (int micro = 1; micro <= settings().accumulate; ++micro) {
    monitor::PhaseScope waiting(progress_, metrics::Phase::data_wait, now.seconds);
    const Batch* batch = loader.next();
    waiting.end();
    // It waits for a free slot if steps before are under way. So the time here is not the copy's.
    const monitor::PhaseScope copying(progress_, metrics::Phase::copy, now.seconds,
                                      metrics::Phase::gpu);
    training_.queue(*batch, {.first = micro == 1,
                             .last = micro == settings().accumulate,
                             .step = static_cast<std::int64_t>(position().step),
                             .learning_rate = now.learning_rate,
                             .sample_weight = settings().sample_weight(),
                             .share = settings().share * settings().sample_weight(),
                             .stop = request.stop,
                             .signal = request.signal,
                             .save = request.save,
                             .measure_links = request.measure_links,
                             .unreadable = request.unreadable});
  }
  advance();
  now.position = position();
  under_way_.push_back(now);
  return take(ahead_);
}

// The GPU tells lengths, not moments: a step ends when the host sees its end, at the latest, and
// begins no earlier than the one before ended.
void GpuStepper::record(const compute::GpuOutcome& o, std::uint64_t step) {
  metrics::Timeline* const timeline = progress_.timeline();
  if (timeline == nullptr) return;
  const auto parts = parts_of(o);
  double seconds = 0;
  for (const auto& [phase, part] : parts) seconds += part;
  auto at =
      std::max(recorded_, metrics::Timeline::Clock::now() - metrics::Timeline::length(seconds));
  timeline->add(metrics::Phase::step, at, seconds, step, metrics::Row::gpu);
  for (const auto& [phase, part] : parts) {
    timeline->add(phase, at, part, step, metrics::Row::gpu);
    at += metrics::Timeline::length(part);
  }
  recorded_ = at;
}

// What the host waited for, and batches on their way, count only as far as the GPU had nothing to
// do meanwhile.
std::optional<StepReport> GpuStepper::take(int still_under_way) {
  progress_.enter(metrics::Phase::gpu);
  const std::optional<compute::GpuOutcome> o = training_.outcome(still_under_way);
  if (!o) return std::nullopt;
  const UnderWay step = under_way_.front();
  under_way_.pop_front();
  progress_.finish_step();
  record(*o, step.position.step);
  const double data_wait_s = std::min(step.seconds[metrics::Phase::data_wait], o->idle_s);
  metrics::PhaseSeconds seconds;
  seconds[metrics::Phase::data_wait] = data_wait_s;
  seconds[metrics::Phase::copy] = std::min(o->staged_s + o->copy_s, o->idle_s - data_wait_s);
  for (const auto& [phase, part] : parts_of(*o)) seconds[phase] = part;
  const double sums_s = first_lead_ * o->backward_s / settings().accumulate + o->exposed_s;
  return StepReport{step.position, step.learning_rate, seconds, sums_s, outcome_of(*o)};
}

}  // namespace ringtrain::train
