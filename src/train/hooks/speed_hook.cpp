#include "train/hooks/speed_hook.hpp"

#include <fmt/core.h>

#include <chrono>
#include <ctime>
#include <utility>

#include "ringtrain/base/program.hpp"
#include "ringtrain/metrics/log_text.hpp"
#include "ringtrain/monitor/slowdown/slowdown_report.hpp"
#include "train/loop/trainer.hpp"
#include "train/performance/link_speeds.hpp"

namespace ringtrain::train {

SpeedHook::SpeedHook(const Parts& parts, const std::vector<std::string>& hosts, bool in_full)
    : parts_(parts), in_full_(in_full), hosts_(hosts) {
  if (parts.run.session.rank() > 0 || !in_full) return;
  past_runs_.emplace(cache_folder(), "run",
                     run_configuration(parts.run.plan, parts.engine.device(), hosts));
  expect_past_speed();
}

void SpeedHook::expect_past_speed() {
  const auto past = past_runs_->find();
  auto* const slowdowns = parts_.log.slowdowns();
  if (!past || slowdowns == nullptr) return;
  const auto when = std::chrono::system_clock::from_time_t(past->measured);
  slowdowns->expect(
      {.step_s = parts_.run.plan.global_batch / past->examples_per_second.median,
       .source = fmt::format("the run of {} reached", metrics::timestamp(when).substr(0, 16)),
       .phases = past->phases});
}

// Its forecast knows of sums beside backward, but not of a gather behind the update.
void SpeedHook::measure_links(const Position& start) {
  const RunPlan& plan = parts_.run.plan;
  if (!plan.shards_optimizer() || plan.options.device != config::Device::cuda)
    links_.emplace(plan, parts_.engine.probe(), parts_.run.session, parts_.run.progress,
                   parts_.run.output, start);
  host_links_ = parts_.engine.probe().measure_host_links();
}

// What ends with this step has no time for more. Shards of a save may be under way behind the step
// that asked for it.
void SpeedHook::between_steps(Trainer& trainer) {
  if (links_ && links_->is_due(trainer.position()))
    trainer.do_untimed([&] { links_->judge(!trainer.is_last()); });
  if (!links_due_ || saves_shards_ || trainer.is_last()) return;
  links_due_ = false;
  trainer.do_untimed([&] { compare_host_links(); });
}

void SpeedHook::compare_host_links() {
  LinkSpeeds links{.start = host_links_, .now = parts_.engine.probe().measure_host_links()};
  if (parts_.run.session.rank() > 0) return;
  links.hosts.resize(links.now.size());
  for (std::size_t rank = 0; rank < hosts_.size(); ++rank)
    links.hosts[static_cast<std::size_t>(parts_.run.session.host_of()[rank])] = hosts_[rank];
  const double hosts = parts_.run.session.hosts();
  links.step_bytes = 2 * (hosts - 1) / hosts * parts_.run.plan.sum_bytes();
  links.step_s = last_step_s_;
  parts_.log.event("link_speeds", compare_links(links));
}

StepLogger::Expected SpeedHook::expected() const {
  StepLogger::Expected expected;
  if (links_ && links_->expected()) expected.step_s = links_->expected()->step_s();
  expected.alone = parts_.efficiency.alone();
  return expected;
}

void SpeedHook::keep() {
  parts_.run.progress.enter(metrics::Phase::open, cache_folder());
  keep_best();
  if (in_full_) parts_.efficiency.keep_own(parts_.log.times());
}

// A slower run replaces a faster one only where it was said that it stays so.
void SpeedHook::keep_best() {
  const monitor::SlowdownReporter* const slowdowns = parts_.log.slowdowns();
  const auto reached = slowdowns != nullptr ? slowdowns->reached() : std::nullopt;
  if (!past_runs_ || !reached) return;
  const auto past = past_runs_->find();
  if (past && past->examples_per_second.median > reached->examples_per_second &&
      !slowdowns->stays_slower())
    return;
  const std::string why =
      past_runs_->keep({{reached->examples_per_second, 0}, reached->phases, std::time(nullptr)});
  if (!why.empty())
    parts_.run.output.note("the speed of this run is not kept for later ones: " + why);
}

}  // namespace ringtrain::train
