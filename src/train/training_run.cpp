#include "train/training_run.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <numeric>
#include <thread>
#include <utility>

#include "ringtrain/base/error.hpp"
#include "ringtrain/base/program.hpp"
#include "ringtrain/metrics/trace/save_timeline.hpp"
#include "train/evaluation/evaluator.hpp"
#include "train/evaluation/predictor.hpp"
#include "train/hooks/hooks.hpp"
#include "train/hooks/speed_hook.hpp"
#include "train/loop/trainer.hpp"
#include "train/loop/unreadable_samples.hpp"

namespace ringtrain::train {
namespace {

std::string ending(int signal, const Position& position) {
  const std::string why =
      signal != 0 ? fmt::format("signal {} ({})", signal, ::strsignal(signal)) : "--max-time is up";
  return fmt::format("{}: the run ends after step {}", why, position.step);
}

// Until one was saved: at 100 MB/s.
double guessed_save_s(const io::StateLayout& layout, const config::Options& options) {
  if (options.checkpoint_dir.empty()) return 0;
  const auto floats = std::accumulate(layout.buffers.begin(), layout.buffers.end(), std::size_t{0});
  return double(floats * sizeof(float)) / 1e8;
}

}  // namespace

TrainingRun::TrainingRun(const RunContext& run, TrainingEngine& engine, monitor::Watchdog& watchdog,
                         const Stopwatch& since_start, std::uint64_t most_steps)
    : run_(run),
      watchdog_(watchdog),
      engine_(engine),
      since_start_(since_start),
      most_steps_(most_steps),
      checkpoints_(run, engine),
      control_(run.options().max_time_s, since_start),
      efficiency_(run, engine) {}

void TrainingRun::prepare(io::WriterProcess& writer) {
  run_.progress.enter(metrics::Phase::resume, options().checkpoint_dir);
  run_.progress.forget_steps();
  start_ = checkpoints_.start(writer);
  if (options().eval_only && !start_.loaded)
    run_.session.fail_together(
        fmt::format("--{}: found no checkpoint; name one with --resume FILE, --init-from FILE or "
                    "--checkpoint-dir",
                    options().predicts() ? "predict" : "eval-only"),
        Exit::usage);
}

int TrainingRun::dry_run(io::WriterProcess& writer) {
  prepare(writer);
  test_allreduce();
  engine_.close();
  run_.note("training would begin: model, memory, sums and checkpoints are ready on all ranks");
  run_.progress.enter(metrics::Phase::exit);
  return 0;
}

// A sum is what finds out whether ranks reach each other the way that sums go; the broadcast behind
// it waits for its end, also on GPUs.
void TrainingRun::test_allreduce() {
  run_.progress.enter(metrics::Phase::communication);
  allreduce::Communicator& ranks = engine_.communicator();
  const Buffer numbers = ranks.memory().allocate(64);
  try {
    ranks.start_allreduce(numbers);
    ranks.finish();
    ranks.broadcast(numbers, 0);
    ranks.check();
  } catch (...) {
    ranks.abort();  // before the numbers go
    throw;
  }
}

int TrainingRun::run(io::WriterProcess& writer) {
  prepare(writer);
  hosts_ = run_.session.gather(run_.session.host());
  run_.output.write(metrics::StartRecord{checkpoints_.config(), program_hash(), run_.session.size(),
                                         hosts_, static_cast<std::int64_t>(start_.position.step)});
  run_.progress.enter(metrics::Phase::init);
  if (options().baseline) {
    efficiency_.measure(engine_, control_.signals());
  } else if (!options().eval_only && most_steps_ == 0) {
    run_.progress.enter(metrics::Phase::open, cache_folder());
    efficiency_.recall(start_.position);
  }
  const int code = options().eval_only ? evaluate_only() : train();
  run_.progress.enter(metrics::Phase::ranks);
  engine_.close();
  run_.progress.enter(metrics::Phase::exit);
  if (const auto& failure = control_.failure()) {
    keep_timeline();
    run_.session.fail_together(failure->what(), failure->code());
  }
  return code;
}

int TrainingRun::evaluate_only() {
  if (options().predicts()) {
    predict(run_, engine_, control_);
    note_ending(start_.position);
    return control_.exit_code();
  }
  log_.emplace(run_.output, run_.plan, start_.position, run_.session.rank());
  LogHook logger({.run = run_, .log = *log_});
  ClassAccount classes;
  const bool asked = !options().report.empty() || !options().metrics.empty();
  const bool tells_classes = !run_.session.broadcast(asked ? "yes" : "").empty();
  Evaluator evaluator({.run = run_,
                       .engine = engine_,
                       .control = control_,
                       .classes = tells_classes ? &classes : nullptr},
                      {&control_, &logger});
  evaluator.evaluate_at(start_.position);
  const bool whole = evaluator.evaluated_step() == start_.position.step && !control_.failure();
  if (tells_classes && whole)
    if (const auto record =
            class_record(classes, static_cast<std::int64_t>(start_.position.step),
                         *run_.plan.evaluation, run_.session, !options().report.empty()))
      run_.output.write(*record);
  note_ending(start_.position);
  return control_.exit_code();
}

void TrainingRun::note_ending(const Position& position) {
  if (control_.stopping() && !control_.failure()) run_.note(ending(control_.signal(), position));
}

bool TrainingRun::done(const Position& position) const {
  return run_.plan.done(position) || (best_ && best_->ends_training()) ||
         (most_steps_ > 0 && position.step >= start_.position.step + most_steps_);
}

// Counted as done() does, as last_step() rounds in another way.
std::uint64_t TrainingRun::steps_left() const {
  const std::uint64_t first = start_.position.step;
  Position position = start_.position;
  if (!done(position)) {
    std::uint64_t most = run_.plan.last_step(position) - first;
    if (most_steps_ > 0) most = std::min(most, most_steps_);
    position.step += most;
    position.samples += most * static_cast<std::uint64_t>(run_.plan.global_batch);
  }
  for (; !done(position); ++position.step)
    position.samples += static_cast<std::uint64_t>(run_.plan.global_batch);
  return position.step - first;
}

io::LoaderOptions TrainingRun::loader_options() {
  io::LoaderOptions loader = run_.plan.loader(io::Split::training);
  loader.start = start_.position.samples;
  loader.most_batches = steps_left() * static_cast<std::uint64_t>(options().accumulate);
  loader.on_retry = [this] { run_.progress.enter(metrics::Phase::data_wait); };
  loader.report = run_.session.reporter();
  if (metrics::Timeline* const timeline = run_.progress.timeline())
    loader.on_batch = [timeline](int thread, const TimeSpan& batch) {
      timeline->add(metrics::Phase::batch, batch, metrics::Row::loader, thread);
    };
  return loader;
}

int TrainingRun::train() {
  run_.progress.enter(metrics::Phase::plan);
  run_.progress.forget_steps();
  log_.emplace(run_.output, run_.plan, start_.position, run_.session.rank(), hosts_,
               [this](auto& of_ranks) { watchdog_.accounts(of_ranks); });
  control_.set_save_s(guessed_save_s(engine_.state().layout(), options()));
  const std::unique_ptr<CheckpointManager> made = checkpoints_.make_manager(
      [this](const io::SaveEvent& event, double stall_s) { log_->save(event, stall_s); });
  CheckpointManager& checkpoints = *made;
  const std::unique_ptr<Stepper> stepper = engine_.make_stepper(start_.position);
  // mpirun kills the ranks a second after their SIGTERM, and they end a second after mpirun. A step
  // may take longer.
  const auto at_stop =
      run_.session.rank() == 0
          ? control_.signals().call_at_stop([&] { return checkpoints.save_if_killed(); })
          : nullptr;
  io::Loader loader(*run_.plan.training, loader_options());
  try {
    const int code = train_to_the_end(*stepper, loader, checkpoints);
    run_.progress.enter(metrics::Phase::data_wait);  // for what a loader thread still reads
    return code;
  } catch (const std::exception& failure) {
    // Here, before buffers and threads go: a sum in flight still writes to them, and a loader
    // thread may be stuck in a read.
    keep_timeline();
    const auto* const error = dynamic_cast<const Error*>(&failure);
    if (error != nullptr && (error->code() == Exit::data || error->code() == Exit::limit))
      keep_last_step(checkpoints);
    run_.session.abort(failure);
  }
}

// What the data do not give leaves the state as it is. The writer saves it once this process is
// gone; nothing where this rank has no writer, or the state is on a GPU or shared among the ranks.
void TrainingRun::keep_last_step(CheckpointManager& checkpoints) {
  const Deadline deadline(options().final_save_timeout_s);
  while (!checkpoints.save_if_killed() && !deadline.over())
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
}

int TrainingRun::train_to_the_end(Stepper& stepper, io::Loader& loader,
                                  CheckpointManager& checkpoints) {
  const Position start = start_.position;
  NonFiniteGuard guard(run_, engine_, *log_, checkpoints, [this] { keep_timeline(); });
  UnreadableSamples unreadable({run_, *log_, loader, checkpoints, control_});
  ReplicaCheck check(engine_.state(), run_.session, *options().check_every, start.step);
  ReplicaCheckHook replicas(check, checkpoints);
  CheckpointHook saves(checkpoints, control_, run_.progress, options().final_save_timeout_s);
  LogHook logger({run_, *log_, &watchdog_, &loader, &checkpoints});
  run_.progress.enter(metrics::Phase::open, cache_folder());
  best_.emplace(BestEvaluations::Parts{run_, *log_, checkpoints, since_start_}, start_.best);
  SpeedHook speed({run_, engine_, *log_, efficiency_}, hosts_, most_steps_ == 0);
  run_.progress.enter(metrics::Phase::plan);
  const std::vector<Hook*> hooks = {&guard,  &control_, &unreadable, &replicas,
                                    &*best_, &logger,   &saves,      &speed};
  Evaluator evaluator({run_, engine_, control_, [&] { keep_last_step(checkpoints); }}, hooks);

  if (!run_.plan.evaluation)
    run_.note(
        "training without evaluation: the data has no directory val/, valid/, validation/ or "
        "test/, and no shards for evaluation");
  const bool nothing_left = done(start);
  if (nothing_left) run_.note("that is the end of training already: nothing to do");
  if (!nothing_left) unreadable.recall(start_.unreadable);
  if (run_.session.size() > 1 && most_steps_ == 0 && !nothing_left) speed.measure_links(start);
  // The run before may have ended amid this evaluation, or before it.
  if (start.step > 0 && !nothing_left && !control_.stopping() && run_.plan.evaluation_due(start))
    evaluator.evaluate_at(start);
  Trainer trainer({stepper, loader, engine_.communicator(), run_.progress, hooks,
                   [this](const Position& p) { return done(p); },
                   [this] { return control_.stopping(); },
                   [this](const Position& p) { return run_.plan.evaluation_due(p); },
                   [&](const Position& p) { evaluator.evaluate_at(p); }});
  trainer.train();
  end_ = trainer.position();
  replicas.compare(end_, true);
  return finish(checkpoints, evaluator, speed);
}

int TrainingRun::finish(CheckpointManager& checkpoints, Evaluator& evaluator, SpeedHook& speed) {
  run_.progress.enter(metrics::Phase::checkpoint);
  // Handed over before the last evaluation, so that a kill during that loses nothing.
  checkpoints.save(end_);
  if (!control_.stopping()) checkpoints.settle(Deadline(options().final_save_timeout_s));
  if (run_.plan.evaluation && !control_.stopping() && evaluator.evaluated_step() != end_.step)
    evaluator.evaluate_at(end_);
  note_ending(end_);
  run_.progress.enter(metrics::Phase::checkpoint);
  const auto failure =
      checkpoints.finish(end_, Deadline(options().final_save_timeout_s), control_.stopping());
  run_.session.barrier_asleep();  // no rank leaves while rank 0 still saves: leaving has a limit
  run_.progress.enter(metrics::Phase::output);
  log_->finish(end_, checkpoints.counts(), run_.session, speed.expected());
  speed.keep();
  if (failure) throw log_->with_last_good(*failure);
  return control_.exit_code();
}

void TrainingRun::keep_timeline() {
  if (const metrics::Timeline* const timeline = run_.progress.timeline();
      timeline && run_.session.rank() == 0)
    run_.note(metrics::save_own_timeline(*timeline, options().timeline, run_.session.host()));
}

void TrainingRun::require_efficiency() const {
  if (control_.exit_code() == 0) efficiency_.require(log_->times());
}

PartResult TrainingRun::end() const {
  PartResult end{.start = start_.position,
                 .end = end_,
                 .resumed_from = start_.resumed_from,
                 .exit_code = control_.exit_code()};
  std::vector<io::TensorInfo> tensors;
  for (const io::TensorPlace& place : engine_.state().layout().tensors) {
    tensors.push_back(place.info);
    end.tensors.push_back(place.info.name);
  }
  end.hashes = engine_.state().hashes(run_.session);
  end.state_hash = io::state_hash(checkpoints_.metadata(end_), tensors, end.hashes);
  return end;
}

}  // namespace ringtrain::train
