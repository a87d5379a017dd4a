#include "train/engine/cpu_stepper.hpp"

#include <time.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <utility>

#include "ringtrain/base/clock.hpp"
#include "ringtrain/monitor/phase_scope.hpp"

namespace ringtrain::train {
namespace {

constexpr std::size_t worth_threads = 65536;

// Element by element: threads do not change the bits.
void add(std::span<float> sum, std::span<const float> values) {
#pragma omp parallel for simd schedule(static) if (sum.size() > worth_threads)
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += values[i];
}

void copy(std::span<float> to, std::span<const float> values) {
#pragma omp parallel for simd schedule(static) if (to.size() > worth_threads)
  for (std::size_t i = 0; i < to.size(); ++i) to[i] = values[i];
}

// Calls f(running, batch, momentum) for each statistic.
template <class F>
void for_each_statistic(const CpuStepper::Parts& parts, const F& f) {
  float* const running = parts.buffers.statistics.view().data();
  const float* const batch = parts.buffers.sums.statistics().data();
  std::size_t i = 0;
  for (const auto& [end, momentum] : parts.momenta)
    for (; i < end; ++i) f(running[i], batch[i], momentum);
}

float moved(float running, float batch, float momentum) {
  return running + momentum * (batch - running);
}

// Of the calling thread, in all. The system counts no time in which it was stopped or waited.
double cpu_s() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return double(time.tv_sec) + 1e-9 * double(time.tv_nsec);
}

}  // namespace

CpuStepper::CpuStepper(const Parts& parts, const StepSettings& settings, Position start)
    : Stepper(settings, start), parts_(parts) {
  if (settings.accumulate > 1) accumulated_.resize(parts.buffers.sums.gradients().size());
}

std::optional<StepReport> CpuStepper::step(io::Loader& loader, const host::StepRequest& request) {
  parts_.progress.begin_step(position().step + 1);
  seconds_ = {};
  const double rate = learning_rate();
  parts_.optimizer.begin({static_cast<std::int64_t>(position().step), rate, 1.0});
  parts_.buffers.sums.clear_head();
  parts_.buffers.sums.ask(request);
  for (int micro = 1; micro <= settings().accumulate; ++micro) {
    monitor::PhaseScope waiting(parts_.progress, metrics::Phase::data_wait, seconds_);
    const Batch* batch = loader.next();
    waiting.end();
    run_micro_step(*batch, micro);
  }
  monitor::PhaseScope communication(parts_.progress, metrics::Phase::communication, seconds_);
  parts_.reducer.finish();
  const double sums_s = communication.end() + parts_.reducer.first_lead_s();

  monitor::PhaseScope updating(parts_.progress, metrics::Phase::update, seconds_);
  StepOutcome outcome = parts_.buffers.sums.outcome();
  std::unique_lock writing(parts_.last_step.mutex);
  parts_.optimizer.clip();
  outcome.not_finite = outcome.not_finite || !stays_finite();
  if (!outcome.not_finite) {
    update();
    parts_.reducer.accept();
    outcome.l2 = parts_.optimizer.l2_loss();
    outcome.loss += outcome.l2;
  } else {
    if (parts_.optimizer.revertible()) parts_.optimizer.revert();
    if (settings().leaves_out) parts_.optimizer.skip();
  }
  advance();
  if (!outcome.not_finite || settings().leaves_out) parts_.last_step.position = position();
  writing.unlock();
  updating.end();
  parts_.progress.finish_step();
  return StepReport{position(), rate, seconds_, sums_s, outcome};
}

void CpuStepper::run_micro_step(const Batch& batch, int micro) {
  const double sample_weight = settings().sample_weight();
  taken_ = parts_.buffers.sums.gradients().size();
  parts_.progress.enter(metrics::Phase::forward);  // no scopes: the program tells both times
  bool backward = false;
  const auto final = [&](std::size_t first) {
    if (!std::exchange(backward, true)) parts_.progress.enter(metrics::Phase::backward);
    take(first, micro);
  };
  Stopwatch watch;
  const auto begin = watch.started();
  const double cpu_before_s = cpu_s();
  const compute::StepResult result =
      parts_.program.run(batch, sample_weight, final, parts_.sum_over_ranks);
  const double took_s = watch.lap();
  if (parts_.never_sleeps)
    parts_.progress.add_no_cpu(
        std::max(0.0, took_s - result.ranks_seconds - (cpu_s() - cpu_before_s)));
  const auto turn = begin + metrics::Timeline::length(result.backward_at_s);
  parts_.progress.record(metrics::Phase::forward, {begin, turn, position().step + 1});
  parts_.progress.record(metrics::Phase::backward, {turn, watch.started(), position().step + 1});
  parts_.buffers.sums.add(result, parts_.buffers.batch_statistics, sample_weight,
                          settings().share * sample_weight);
  seconds_[metrics::Phase::forward] += result.forward_seconds;
  seconds_[metrics::Phase::backward] += result.backward_seconds;
  seconds_[metrics::Phase::communication] += result.ranks_seconds;
}

// Gradients from `first` on are final in this micro-step: add up those of all micro-steps, while a
// cache still has them, and in the last one let their sum over the ranks start. The front waits for
// finish(), because the head goes with it.
void CpuStepper::take(std::size_t first, int micro) {
  const std::size_t count = std::exchange(taken_, first) - first;
  const std::span<float> gradients = parts_.buffers.sums.gradients().host().subspan(first, count);
  if (micro < settings().accumulate) {
    const std::span<float> sum = std::span(accumulated_).subspan(first, count);
    if (micro == 1)
      copy(sum, gradients);
    else
      add(sum, gradients);
    return;
  }
  if (micro > 1) add(gradients, std::span(accumulated_).subspan(first, count));
  if (first > 0) parts_.reducer.final_from(parts_.buffers.sums.place_of(first));
}

// Whether the state does, with this step. Where no step is left out, an optimizer that does not is
// found by the next save.
bool CpuStepper::stays_finite() {
  if (optim::first_non_finite(parts_.buffers.sums.gradients())) return false;
  bool finite = true;
  for_each_statistic(parts_, [&](float running, float batch, float momentum) {
    finite = finite && std::isfinite(moved(running, batch, momentum));
  });
  if (!finite) return false;
  return !settings().leaves_out || parts_.optimizer.has_part() || parts_.optimizer.stays_finite();
}

void CpuStepper::update() {
  if (parts_.optimizer.has_part())
    parts_.optimizer.adopt();
  else
    parts_.optimizer.update({0, parts_.buffers.sums.gradients().size()});
  for_each_statistic(parts_, [](float& running, float batch, float momentum) {
    running = moved(running, batch, momentum);
  });
  const View averaged = parts_.buffers.averaged_statistics;
  if (averaged.size() == 0) return;
  optim::move_average(averaged, parts_.buffers.statistics, parts_.optimizer.average_decay());
  if (parts_.optimizer.looks_ahead())
    std::ranges::copy(averaged.host(), parts_.buffers.statistics.view().data());
}

}  // namespace ringtrain::train
