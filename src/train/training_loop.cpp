#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstring>
#include <ctime>
#include <exception>
#include <functional>
#include <memory>
#include <numeric>
#include <utility>

#include "ringtrain/base/error.hpp"
#include "ringtrain/base/program.hpp"
#include "ringtrain/config/option_values.hpp"
#include "ringtrain/metrics/log_text.hpp"
#include "ringtrain/metrics/trace/save_timeline.hpp"
#include "train/evaluation.hpp"
#include "train/trainer.hpp"

namespace ringtrain {
namespace {

constexpr double seen_stall_s = 1e-5;  // of a step, on a timeline

std::string ending(int signal, const Position& position) {
  const std::string why =
      signal != 0 ? fmt::format("signal {} ({})", signal, ::strsignal(signal)) : "--max-time is up";
  return fmt::format("{}: the run ends after step {}", why, position.step);
}

// Until one was saved: at 100 MB/s.
double guessed_save_s(const StateLayout& layout, const Options& options) {
  if (options.checkpoint_dir.empty()) return 0;
  const auto floats = std::accumulate(layout.buffers.begin(), layout.buffers.end(), std::size_t{0});
  return double(floats * sizeof(float)) / 1e8;
}

}  // namespace

bool Trainer::done(const Position& position) const {
  return plan_.done(position) || (most_steps_ > 0 && position.step >= start_.step + most_steps_);
}

// Counted as done() does, as last_step() rounds in another way.
std::uint64_t Trainer::steps_left() const {
  Position position = start_;
  if (!done(position)) {
    std::uint64_t most = plan_.last_step(start_) - start_.step;
    if (most_steps_ > 0) most = std::min(most, most_steps_);
    position.step += most;
    position.samples += most * static_cast<std::uint64_t>(plan_.global_batch);
  }
  for (; !done(position); ++position.step)
    position.samples += static_cast<std::uint64_t>(plan_.global_batch);
  return position.step - start_.step;
}

int Trainer::train() {
  progress_.enter(Activity::open, cache_folder());
  progress_.forget_steps();
  log_.emplace(output_, plan_, start_, session_.rank(),
               RankLedger(hosts_, [this] { return watchdog_.accounts(); }));
  if (session_.rank() == 0 && most_steps_ == 0)
    earlier_runs_.emplace(cache_folder(), "run",
                          run_configuration(plan_, engine_.device(), hosts_));
  expect_earlier_speed();
  progress_.enter(Activity::plan);
  ranks_.emplace(engine_.state(), session_, *options().check_every, start_.step);
  last_save_s_ = guessed_save_s(engine_.state().layout(), options());
  CheckpointManager checkpoints = make_checkpoints();
  const std::unique_ptr<Stepper> trainer = engine_.make_stepper(start_);
  // mpirun kills the ranks a second after their SIGTERM, and a step may take longer.
  const auto at_stop = session_.rank() == 0
                           ? stop_.call_at_stop([&] { return checkpoints.save_if_killed(); })
                           : nullptr;
  LoaderOptions loader_options = plan_.loader(Split::training);
  loader_options.start = start_.samples;
  loader_options.most_batches = steps_left() * static_cast<std::uint64_t>(options().accumulate);
  loader_options.on_retry = [this] { progress_.enter(Activity::data); };
  loader_options.report = session_.reporter();
  if (Timeline* const timeline = progress_.timeline())
    loader_options.on_batch = [timeline](int thread, const TimeSpan& batch) {
      timeline->add(Doing::batch, batch, Row::loader, thread);
    };
  Loader loader(*plan_.training, loader_options);
  try {
    return train_to_the_end(*trainer, loader, checkpoints);
  } catch (const std::exception& failure) {
    // Here, before buffers and threads go: a sum in flight still writes to them, and a loader
    // thread may be stuck in a read.
    keep_timeline();
    session_.abort(failure);
  }
}

int Trainer::train_to_the_end(Stepper& trainer, Loader& loader, CheckpointManager& checkpoints) {
  if (!plan_.evaluation)
    output_.note(
        "training without evaluation: the data has no directory val/ or test/, and no "
        "shards for evaluation");
  if (plan_.done(start_)) output_.note("that is the end of training already: nothing to do");
  const auto judge = [&](const Position& position) {
    const auto offer_it = [&] { offer(checkpoints, position); };
    evaluate_at(position, offer_it);
    offer_it();
  };
  if (session_.size() > 1 && most_steps_ == 0 && !plan_.done(start_))
    links_.emplace(plan_, engine_, session_, progress_, output_, start_);
  // The run before may have ended amid this evaluation, or before it.
  if (start_.step > 0 && !plan_.done(start_) && plan_.evaluation_due(start_)) judge(start_);
  step_watch_.lap();
  while (!done(trainer.position()) && !stopping_) {
    step(trainer, loader, checkpoints);
    if (stopping_ || !plan_.evaluation_due(trainer.position())) continue;
    finish_steps(trainer);
    progress_.enter(Activity::save);
    checkpoints.settle(Deadline(options().final_save_timeout_s));
    if (!stopping_) judge(trainer.position());
  }
  finish_steps(trainer);
  end_ = trainer.position();
  ranks_->offer(end_.step, true, [&] { checkpoints.keep_nothing(); });
  progress_.enter(Activity::save);
  // Handed over before the last evaluation, so that a kill during that loses nothing.
  checkpoints.save(trainer.position());
  if (!stopping_) checkpoints.settle(Deadline(options().final_save_timeout_s));
  if (plan_.evaluation && !stopping_ && evaluated_step_ != trainer.position().step)
    judge(trainer.position());
  if (stopping_) output_.note(ending(signal_, trainer.position()));
  progress_.enter(Activity::save);
  const auto failure =
      checkpoints.finish(trainer.position(), Deadline(options().final_save_timeout_s));
  session_.barrier_asleep();  // no rank leaves while rank 0 still saves: leaving has a limit
  progress_.enter(Activity::output);
  StepLogger::Expected expected;
  if (links_ && links_->expected()) expected.step_s = links_->expected()->step_s();
  expected.alone = efficiency_.alone();
  log_->finish(trainer.position(), checkpoints.counts(), session_, expected);
  progress_.enter(Activity::open, cache_folder());
  keep_speed();
  if (most_steps_ == 0) efficiency_.keep_own(log_->times());
  if (failure) throw log_->with_last_good(*failure);
  return exit_code();
}

void Trainer::step(Stepper& trainer, Loader& loader, CheckpointManager& checkpoints) {
  const auto begin = Timeline::Clock::now();
  if (links_) links_->begin_step(trainer.position());
  StepRequest wanted = request();
  wanted.save = checkpoints.wants({trainer.position().step + 1});
  auto report = trainer.step(loader, wanted);
  engine_.communicator().check();
  if (report) look_at(*report);
  const Position& position = trainer.position();
  if (const bool last = stopping_ || done(position); ranks_->due(position.step, last)) {
    // A GPU's steps are waited for with a limit, its state is not.
    while (const auto next = trainer.finish_step()) {
      if (report) tell(*report, 0, checkpoints.saving());
      report = next;
      engine_.communicator().check();
      look_at(*report);
    }
    ranks_->offer(position.step, last, [&] { checkpoints.keep_nothing(); });  // before a save of it
  }
  if (stop_.signal() != 0) checkpoints.save_if_killed();  // before it is told
  const double stalled = checkpoints.stalled_s();
  const auto offered = Timeline::Clock::now();
  offer(checkpoints, position);
  const double stall_s = checkpoints.stalled_s() - stalled;
  if (stall_s > seen_stall_s) record(Doing::checkpoint, offered, position.step);
  progress_.enter(Activity::output);
  for (const std::string& text : watchdog_.take_notices()) log_->event("watchdog", text);
  for (const std::string& text : loader.take_events()) log_->event("unreadable_sample", text);
  if (report) tell(*report, stall_s, checkpoints.saving());
  record(Doing::step, begin, position.step);
  if (!links_) return;
  links_->look(position);
  expect_verdict();
}

void Trainer::expect_earlier_speed() {
  const auto earlier = earlier_runs_ ? earlier_runs_->find() : std::nullopt;
  if (!earlier) return;
  const auto when = std::chrono::system_clock::from_time_t(earlier->measured);
  log_->expect({.step_s = plan_.global_batch / earlier->examples_per_second.median,
                .source = fmt::format("the run of {} reached", timestamp(when).substr(0, 16)),
                .phases = earlier->phases});
  is_expected_ = true;
}

// What earlier runs reached is known better. A rank that has a GPU or a host of its own should
// compute as fast as one that is alone.
void Trainer::expect_verdict() {
  if (is_expected_ || !links_->expected()) return;
  is_expected_ = true;
  const Forecast& step = *links_->expected();
  const bool on_its_own = options().device == Device::cuda || session_.hosts() == session_.size();
  if (const auto alone = efficiency_.alone(); alone && on_its_own) {
    const double step_s = plan_.global_batch / (session_.size() * *alone) + step.exposed_s;
    if (step_s < step.step_s())
      return log_->expect(
          {.step_s = step_s, .source = "one rank alone and the links' verdict promise"});
  }
  log_->expect({.step_s = step.step_s(), .source = "the links' verdict expects"});
}

// The fastest two minutes: other work beside a run is not what the next one should reach. A slower
// run replaces a faster one only where it was said that it stays so.
void Trainer::keep_speed() {
  const auto best = log_->best();
  if (!earlier_runs_ || !best) return;
  const double reached = plan_.global_batch / best->step_s;
  const auto earlier = earlier_runs_->find();
  if (earlier && earlier->examples_per_second.median > reached && !log_->has_settled()) return;
  const std::string why = earlier_runs_->keep({{reached, 0}, best->phases, std::time(nullptr)});
  if (!why.empty()) output_.note("the speed of this run is not kept for later ones: " + why);
}

// What ends now.
void Trainer::record(Doing doing, Timeline::Clock::time_point begin, std::uint64_t step) {
  if (Timeline* const timeline = progress_.timeline())
    timeline->add(doing, {begin, Timeline::Clock::now(), step});
}

// Of rank 0, before all is given up.
void Trainer::keep_timeline() {
  if (const Timeline* const timeline = progress_.timeline(); timeline && session_.rank() == 0)
    output_.note(save_own_timeline(*timeline, options().timeline, session_.host()));
}

void Trainer::tell(const StepReport& report, double stall_s, bool saving) {
  const double seconds = step_watch_.lap();
  session_.fault_context().at_step(report.position.step);
  slowest_step_s_ = std::max(0.99 * slowest_step_s_, seconds);  // one long ago counts for less
  progress_.account(log_->step(report, seconds, stall_s, saving));
  if (links_) links_->see(report, seconds);
}

StepRequest Trainer::request() {
  if (stop_.signal() != 0 || out_of_time()) return {true, stop_.signal()};
  const bool save = std::exchange(save_unsaid_, false);
  return {false, stop_.take_save() || save ? SIGUSR1 : 0};
}

// What is still to come must fit: the steps under way, the save under way and the last one, and
// leaving MPI.
bool Trainer::out_of_time() const {
  constexpr double leaving_s = 1;
  if (!options().max_time_s) return false;
  return run_watch_.elapsed() + 3 * slowest_step_s_ + 2 * last_save_s_ + leaving_s >
         *options().max_time_s;
}

void Trainer::grant(const StepRequest& request) {
  if (request.stop && !stopping_) {
    stopping_ = true;
    signal_ = request.signal;
  }
  saving_ = saving_ || request.signal == SIGUSR1;
}

void Trainer::offer(CheckpointManager& checkpoints, const Position& position) {
  if (std::exchange(saving_shards_, false)) checkpoints.save_together(position);
  if (std::exchange(saving_, false)) checkpoints.request(position);
  checkpoints.offer(position);
  if (checkpoints.longest_save_s() > 0) last_save_s_ = checkpoints.longest_save_s();
}

// Those that a GPU was still busy with.
void Trainer::finish_steps(Stepper& trainer) {
  while (const auto report = trainer.finish_step()) {
    engine_.communicator().check();
    look_at(*report);
    tell(*report, 0, false);
  }
}

void Trainer::look_at(const StepReport& report) {
  guard(report.outcome, report.position);
  grant({report.outcome.stop, report.outcome.signal});
  saving_shards_ = report.outcome.save;
}

// All ranks saw the same sums, so all agree in the same step.
void Trainer::guard(const StepOutcome& outcome, const Position& position) {
  if (outcome.skipped && !outcome.not_finite)
    log_->event("skipped", fmt::format("step {} left out: its gradients overflow; the loss scale "
                                       "is {:g} now",
                                       position.step, outcome.loss_scale));
  if (!outcome.not_finite) return;
  std::string where = std::isfinite(outcome.loss) ? "a gradient" : "the loss";
  if (const auto first = engine_.first_non_finite_gradient()) {
    const auto ranges = graph().parameter_ranges();
    const auto found =
        std::ranges::find_if(ranges, [&](const Range& r) { return *first < r.end(); });
    where = "the gradient of " + graph().parameters[found - ranges.begin()].name;
  }
  const std::string text =
      fmt::format("{} is not finite in step {} (loss {})", where, position.step, outcome.loss);
  if (options().on_nan == OnNan::stop) {
    keep_timeline();
    session_.fail_together(text +
                               "; a lower --lr or a longer --warmup-epochs may help, "
                               "--on-nan skip leaves such steps out",
                           Exit::not_finite);
  }
  log_->event("not_finite", text + "; left out");
}

void Trainer::evaluate_at(const Position& position, const std::function<void()>& offer) {
  // All ranks end it at the same time: rank 0 alone knows how long a save takes.
  session_.broadcast(std::as_writable_bytes(std::span(&last_save_s_, 1)), 0);
  const auto ask = [&] {
    offer();
    return request();
  };
  const auto begin = Timeline::Clock::now();
  const Evaluation result = evaluate(
      engine_.evaluation(), *plan_.evaluation, plan_.loader(Split::evaluation), session_, ask,
      [&](const StepRequest& request) { grant(request); }, progress_);
  record(Doing::evaluation, begin, position.step);
  save_unsaid_ = result.unsaid.signal == SIGUSR1;
  if (!result.whole) return tell_cut_short(position, result);
  evaluated_step_ = position.step;
  progress_.enter(Activity::output);
  for (const std::string& text : result.events) log_->event("unreadable_sample", text);
  log_->evaluation(position.step, result);
  step_watch_.lap();  // an evaluation is not part of a step
}

// What was seen of the data says nothing about the model.
void Trainer::tell_cut_short(const Position& position, const Evaluation& result) {
  if (session_.rank() > 0) return;
  progress_.enter(Activity::output);
  log_->event("evaluation_cut_short",
              fmt::format("the evaluation of step {} ended after {} of {} images; a resumed run "
                          "evaluates that step again",
                          position.step, result.examples, plan_.evaluation->size()));
}

void Trainer::fail_without_weights() const {
  session_.fail_together(
      "--eval-only: found no checkpoint to evaluate; name one with --resume FILE, "
      "--init-from FILE or --checkpoint-dir",
      Exit::usage);
}

int Trainer::evaluate_only(bool loaded) {
  if (!loaded) fail_without_weights();
  log_.emplace(output_, plan_, start_, session_.rank(), RankLedger());
  evaluate_at(start_, [] {});
  if (stopping_) output_.note(ending(signal_, start_));
  return exit_code();
}

}  // namespace ringtrain
