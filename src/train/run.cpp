#include "train/run.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstring>
#include <numeric>
#include <utility>

#include "ringtrain/base/error.hpp"
#include "ringtrain/base/hash.hpp"
#include "ringtrain/base/text.hpp"
#include "ringtrain/train/stopwatch.hpp"
#include "train/agreement.hpp"
#include "train/checkpoints.hpp"
#include "train/evaluator.hpp"
#include "train/identity.hpp"
#include "train/init_from.hpp"
#include "train/measure_baseline.hpp"
#include "train/option_values.hpp"
#include "train/plan.hpp"
#include "train/rank_check.hpp"
#include "train/resume.hpp"
#include "train/run_log.hpp"
#include "train/site.hpp"
#include "train/stop_request.hpp"
#include "train/verify_resume.hpp"
#include "train/watchdog.hpp"

namespace ringtrain {
namespace {

// What all ranks must have alike: what is computed, and which collectives are called when.
Agreement claims(const Plan& plan) {
  const Options& o = plan.options;
  return {{"build", program_hash()},
          {"model", o.model},
          {"options", canonical_config(o)},
          {"run",
           fmt::format(
               "--eval-every {} --check-every {}{}{}{}{}{}", o.eval_every, *o.check_every,
               o.eval_only ? " --eval-only" : "", o.init_from.empty() ? "" : " --init-from",
               o.baseline ? " --baseline" : "", o.require_efficiency ? " --require-efficiency" : "",
               o.verify_resume ? fmt::format(" --verify-resume {}", *o.verify_resume) : "")},
          {"training data", hex(plan.training->manifest_hash())},
          {"evaluation data", plan.evaluation ? hex(plan.evaluation->manifest_hash()) : "none"}};
}

// What a resume must find again for each sample to come once an epoch.
std::string training_data(const Plan& plan) {
  return fmt::format("{} samples, {}", plan.training->size(), hex(plan.training->manifest_hash()));
}

std::string ending(int signal, const Position& position) {
  const std::string why =
      signal != 0 ? fmt::format("signal {} ({})", signal, ::strsignal(signal)) : "--max-time is up";
  return fmt::format("{}: the run ends after step {}", why, position.step);
}

Work work_of(const StepSeconds& s) {
  return {1, {s.data_wait, s.copy, s.forward, s.backward, s.update}};
}

// What --device auto and --precision auto mean where there are GPUs.
void choose_gpu_defaults(Options& o, int hosts) {
  o.device = Device::cuda;
  if (o.precision == Precision::automatic) o.precision = Precision::fp16;
  if (!o.check_every) o.check_every = 1000;  // the state has a way to the host
  // A ring's latency grows with the ranks; between GPUs, fewer sums hide more of it.
  if (!o.bucket_mb) o.bucket_mb = hosts == 1 ? 4 : 16;
}

bool lies_in(const std::filesystem::path& directory, const std::filesystem::path& file) {
  std::error_code failure;
  return std::filesystem::equivalent(directory, std::filesystem::absolute(file).parent_path(),
                                     failure);
}

// Until one was saved: at 100 MB/s.
double guessed_save_s(const StateLayout& layout, const Options& options) {
  if (options.checkpoint_dir.empty()) return 0;
  const auto floats = std::accumulate(layout.buffers.begin(), layout.buffers.end(), std::size_t{0});
  return double(floats * sizeof(float)) / 1e8;
}

// One training job on one rank.
class Job {
 public:
  /// `since_start`: of the process; `most_steps`: after which it pauses as if training had ended,
  /// 0: never.
  Job(const Plan& plan, Site& site, const MpiSession& session, Watchdog& watchdog, Output& output,
      const Stopwatch& since_start, std::uint64_t most_steps = 0)
      : run_watch_(since_start),
        session_(session),
        watchdog_(watchdog),
        progress_(watchdog.progress()),
        output_(output),
        plan_(plan),
        site_(site),
        most_steps_(most_steps),
        config_(canonical_config(plan.options, training_data(plan))) {}

  int run(WriterProcess& writer);
  /// What a run that is over came to.
  LegEnd end() const;

 private:
  /// Takes the checkpoint directory, so that no other job writes to it from here on.
  void open_checkpoints(WriterProcess& writer);
  /// Goes on from a checkpoint, where there is one.
  bool resume(const Resume& how);
  /// Takes the weights of another training, where there is one.
  bool start_from(const std::string& file);
  int train();
  int exit_code() const;
  bool done(const Position& position) const;
  int train_to_the_end(Trainer& trainer, Loader& loader, Checkpoints& checkpoints);
  int evaluate_only(bool loaded);
  /// Measures and tells what the ranks gain over one; ends the job where that is too little.
  void compare_with_one_rank();
  const Graph& graph() const { return plan_.model.graph; }
  const Options& options() const { return plan_.options; }
  std::vector<std::string> changes_since(const std::string& config) const;
  StartRecord start_record() const;
  CheckpointMetadata metadata() const;
  Checkpoints make_checkpoints();
  void step(Trainer& trainer, Loader& loader, Checkpoints& checkpoints);
  void finish_steps(Trainer& trainer);
  void tell(const StepReport& report, double stall_s);
  void look_at(const StepReport& report);
  void guard(const StepOutcome& outcome, const Position& position);
  /// `offer` is called between batches.
  void evaluate_at(const Position& position, const std::function<void()>& offer);
  /// What this rank wants; to save is told once.
  Wish wish();
  bool out_of_time() const;
  /// All ranks alike.
  void grant(const Wish& wish);
  /// Saves what is due or asked for.
  void offer(Checkpoints& checkpoints, const Position& position);

  const Stopwatch run_watch_;
  const MpiSession& session_;
  Watchdog& watchdog_;
  Progress& progress_;
  Output& output_;
  const Plan& plan_;
  Site& site_;
  const std::uint64_t most_steps_;
  const std::string config_;
  CheckpointWriter checkpoint_writer_;
  std::optional<RunLog> log_;
  std::optional<RankCheck> ranks_;

  StopRequest stop_;
  Stopwatch step_watch_;
  double slowest_step_s_ = 0;
  Position start_, end_;
  std::filesystem::path resumed_from_;  // on rank 0
  std::optional<std::uint64_t> evaluated_step_;
  bool stopping_ = false, saving_ = false;  // what all ranks want
  int signal_ = 0;                          // that ends the job, on all ranks
  double last_save_s_ = 0;                  // what it may take
};

bool Job::resume(const Resume& how) {
  const auto say = [this](const std::string& line) { output_.note(line); };
  const Wanted wanted = options().eval_only ? Wanted::evaluated : Wanted::everything;
  const auto resumed =
      ringtrain::resume(how, wanted, options().checkpoint_dir, graph().structure_hash(),
                        site_.state(), site_.communicator(), session_, say);
  if (!resumed) return false;
  start_ = {resumed->metadata.step, resumed->metadata.position};
  resumed_from_ = how.from == Resume::From::file
                      ? std::filesystem::path(how.file)
                      : options().checkpoint_dir / std::filesystem::path(resumed->file);
  if (!checkpoint_writer_.idle() && !resumed->file.empty() &&
      (how.from == Resume::From::newest || lies_in(options().checkpoint_dir, how.file)))
    checkpoint_writer_.protect(resumed->file);
  output_.note(fmt::format("resumed from {} at step {}", resumed->file, start_.step));
  if (!options().init_from.empty())
    output_.note("--init-from is for the start of training: not used");
  if (options().eval_only) return true;  // the rest is about what training makes of it
  for (const std::string& change : changes_since(resumed->metadata.config))
    output_.note("changed since that checkpoint: " + change);
  if (resumed->metadata.global_batch != std::uint64_t(plan_.global_batch))
    output_.note(fmt::format("changed since that checkpoint: images a step, all ranks: {} -> {}",
                             resumed->metadata.global_batch, plan_.global_batch));
  if (resumed->metadata.plans != site_.plans())
    output_.note(
        fmt::format("saved with {}, going on with {}: equal up to rounding, not to the bit",
                    brief(resumed->metadata.plans), site_.plans()));
  if (resumed->metadata.world_size != std::uint64_t(session_.size()))
    output_.note(fmt::format("saved by {} ranks, going on with {}: the order of samples stays",
                             resumed->metadata.world_size, session_.size()));
  return true;
}

bool Job::start_from(const std::string& file) {
  if (file.empty()) return false;
  const Heads heads = options().eval_only ? Heads::must_fit : Heads::may_differ;
  output_.note(init_from(file, heads, graph(), site_.state(), site_.communicator(), session_));
  return true;
}

int Job::run(WriterProcess& writer) {
  progress_.enter(Activity::load);
  if (!options().eval_only) open_checkpoints(writer);
  const bool loaded = resume(options().resume) || start_from(options().init_from);
  if (options().baseline) compare_with_one_rank();
  const int code = options().eval_only ? evaluate_only(loaded) : train();
  progress_.enter(Activity::ranks);
  site_.close();
  progress_.enter(Activity::exit);
  return code;
}

// A checkpoint's options are text from a file: if they cannot be read, that is no failure.
std::vector<std::string> Job::changes_since(const std::string& config) const {
  try {
    return differences(config, config_);
  } catch (const std::exception&) {
    return {"its options cannot be compared"};
  }
}

void Job::open_checkpoints(WriterProcess& writer) {
  if (options().checkpoint_dir.empty()) return;
  WriterOptions writer_options;
  writer_options.run_id = run_id(session_.host());
  writer_options.keep = options().keep;
  checkpoint_writer_ =
      CheckpointWriter(writer, options().checkpoint_dir, site_.state().layout(), writer_options);
}

// Of any step: what does not change in a run.
CheckpointMetadata Job::metadata() const {
  const Options& o = options();
  CheckpointMetadata constant;
  constant.seed = o.seed;
  constant.world_size = session_.size();
  constant.global_batch = plan_.global_batch;
  constant.model = plan_.model.name;
  constant.model_hash = graph().structure_hash();
  constant.config = config_;
  constant.plans = site_.plans();
  constant.buckets = site_.bucket_bounds();
  constant.optimizer = fmt::format(
      R"({{"momentum":{},"mean_square_decay":{},"beta1":{},"beta2":{},"epsilon":{},"trust_coefficient":{}}})",
      plan_.optimizer.momentum, plan_.optimizer.mean_square_decay, plan_.optimizer.beta1,
      plan_.optimizer.beta2, plan_.optimizer.epsilon, plan_.optimizer.trust_coefficient);
  return constant;
}

Checkpoints Job::make_checkpoints() {
  return {std::move(checkpoint_writer_),
          site_.state_copy(),
          metadata(),
          options().checkpoint_every,
          plan_.training->size(),
          [this](const SaveEvent& event, double stall) { log_->save(event, stall); }};
}

StartRecord Job::start_record() const {
  return {config_, program_hash(), session_.size(), session_.gather(session_.host())};
}

int Job::exit_code() const { return signal_ != 0 ? 128 + signal_ : 0; }

bool Job::done(const Position& position) const {
  return plan_.done(position) || (most_steps_ > 0 && position.step >= start_.step + most_steps_);
}

LegEnd Job::end() const {
  LegEnd end{.start = start_, .end = end_, .resumed_from = resumed_from_, .exit_code = exit_code()};
  std::vector<TensorInfo> tensors;
  for (const TensorPlace& place : site_.state().layout().tensors) {
    tensors.push_back(place.info);
    end.tensors.push_back(place.info.name);
  }
  end.hashes = site_.state().hashes();
  end.state_hash = state_hash(at(metadata(), end_, plan_.training->size()), tensors, end.hashes);
  return end;
}

int Job::train() {
  progress_.enter(Activity::load);
  log_.emplace(output_, plan_, start_, session_.rank());
  ranks_.emplace(site_.state(), session_, *options().check_every, start_.step);
  last_save_s_ = guessed_save_s(site_.state().layout(), options());
  Checkpoints checkpoints = make_checkpoints();
  const std::unique_ptr<Trainer> trainer = site_.make_trainer(start_);
  LoaderOptions loader_options = plan_.loader(Split::training);
  loader_options.start = start_.samples;
  Loader loader(*plan_.training, loader_options);
  output_.start(start_record());
  try {
    return train_to_the_end(*trainer, loader, checkpoints);
  } catch (const std::exception& failure) {
    // Here, before buffers and threads go: a sum in flight still writes to them, and a loader
    // thread may be stuck in a read.
    session_.abort(failure);
  }
}

int Job::train_to_the_end(Trainer& trainer, Loader& loader, Checkpoints& checkpoints) {
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
  progress_.enter(Activity::ranks);
  ranks_->offer(end_.step, true);
  progress_.enter(Activity::save);
  // Handed over before the last evaluation, so that a kill during that loses nothing.
  checkpoints.save(trainer.position());
  checkpoints.settle(Deadline(options().final_save_timeout_s));
  if (plan_.evaluation && !stopping_ && evaluated_step_ != trainer.position().step)
    judge(trainer.position());
  if (stopping_) output_.note(ending(signal_, trainer.position()));
  progress_.enter(Activity::save);
  const auto failure =
      checkpoints.finish(trainer.position(), Deadline(options().final_save_timeout_s));
  progress_.enter(Activity::ranks);
  log_->finish(trainer.position(), checkpoints.counts(), session_);
  if (failure) throw log_->with_last_good(*failure);
  return exit_code();
}

void Job::step(Trainer& trainer, Loader& loader, Checkpoints& checkpoints) {
  auto report = trainer.step(loader, wish());
  site_.communicator().check();
  if (report) look_at(*report);
  const Position& position = trainer.position();
  if (const bool last = stopping_ || done(position); ranks_->due(position.step, last)) {
    // A GPU's steps are waited for with a limit, its state is not.
    while (const auto next = trainer.finish_step()) {
      if (report) tell(*report, 0);
      report = next;
      site_.communicator().check();
      look_at(*report);
    }
    progress_.enter(Activity::ranks);
    ranks_->offer(position.step, last);  // before a save of this step's state
    progress_.enter(Activity::update);
  }
  const double stalled = checkpoints.stalled_s();
  offer(checkpoints, position);
  progress_.enter(Activity::output);
  for (const std::string& text : watchdog_.take_notices()) log_->event("straggler", text);
  for (const std::string& text : loader.take_events()) log_->event("unreadable_sample", text);
  if (report) tell(*report, checkpoints.stalled_s() - stalled);
}

void Job::tell(const StepReport& report, double stall_s) {
  const double seconds = step_watch_.lap();
  slowest_step_s_ = std::max(0.99 * slowest_step_s_, seconds);  // one long ago counts for less
  log_->step(report, seconds, stall_s);
}

Wish Job::wish() {
  if (stop_.signal() != 0 || out_of_time()) return {true, stop_.signal()};
  return {false, stop_.take_save() ? SIGUSR1 : 0};
}

// What is still to come must fit: the steps under way, the save under way and the last one, and
// leaving MPI.
bool Job::out_of_time() const {
  constexpr double leaving_s = 1;
  if (!options().max_time_s) return false;
  return run_watch_.elapsed() + 3 * slowest_step_s_ + 2 * last_save_s_ + leaving_s >
         *options().max_time_s;
}

void Job::grant(const Wish& wish) {
  if (wish.stop && !stopping_) {
    stopping_ = true;
    signal_ = wish.signal;
  }
  saving_ = saving_ || wish.signal == SIGUSR1;
}

void Job::offer(Checkpoints& checkpoints, const Position& position) {
  if (std::exchange(saving_, false)) checkpoints.request(position);
  checkpoints.offer(position);
  if (checkpoints.longest_save_s() > 0) last_save_s_ = checkpoints.longest_save_s();
}

// Those that a GPU was still busy with.
void Job::finish_steps(Trainer& trainer) {
  while (const auto report = trainer.finish_step()) {
    site_.communicator().check();
    look_at(*report);
    log_->step(*report, step_watch_.lap(), 0);
  }
}

void Job::look_at(const StepReport& report) {
  progress_.account(work_of(report.seconds));
  guard(report.outcome, report.position);
  grant({report.outcome.stop, report.outcome.signal});
}

// All ranks saw the same sums, so all agree in the same step.
void Job::guard(const StepOutcome& outcome, const Position& position) {
  if (outcome.skipped && !outcome.not_finite)
    log_->event("skipped", fmt::format("step {} left out: its gradients overflow; the loss scale "
                                       "is {:g} now",
                                       position.step, outcome.loss_scale));
  if (!outcome.not_finite) return;
  std::string where = std::isfinite(outcome.loss) ? "a gradient" : "the loss";
  if (const auto first = site_.first_non_finite_gradient()) {
    const auto ranges = graph().parameter_ranges();
    const auto found =
        std::ranges::find_if(ranges, [&](const Range& r) { return *first < r.end(); });
    where = "the gradient of " + graph().parameters[found - ranges.begin()].name;
  }
  const std::string text =
      fmt::format("{} is not finite in step {} (loss {})", where, position.step, outcome.loss);
  if (options().on_nan == OnNan::stop)
    session_.fail_together(text +
                               "; a lower --lr or a longer --warmup-epochs may help, "
                               "--on-nan skip leaves such steps out",
                           Exit::not_finite);
  log_->event("not_finite", text + "; left out");
}

void Job::evaluate_at(const Position& position, const std::function<void()>& offer) {
  // All ranks end it at the same time: rank 0 alone knows how long a save takes.
  session_.broadcast(std::as_writable_bytes(std::span(&last_save_s_, 1)), 0);
  const auto ask = [&] {
    offer();
    return wish();
  };
  const Evaluation result = evaluate(site_.evaluation(), *plan_.evaluation,
                                     plan_.loader(Split::evaluation), session_, ask, progress_);
  grant(result.wish);
  if (result.wish.stop) return;
  evaluated_step_ = position.step;
  progress_.enter(Activity::output);
  for (const std::string& text : result.events) log_->event("unreadable_sample", text);
  log_->evaluation(position.step, result);
  step_watch_.lap();  // an evaluation is not part of a step
}

int Job::evaluate_only(bool loaded) {
  if (!loaded)
    session_.fail_together(
        "--eval-only: found no checkpoint to evaluate; name one with --resume FILE, "
        "--init-from FILE or --checkpoint-dir",
        Exit::usage);
  log_.emplace(output_, plan_, start_, session_.rank());
  evaluate_at(start_, [] {});
  if (stopping_) output_.note(ending(signal_, start_));
  return exit_code();
}

void Job::compare_with_one_rank() {
  const auto measured = measure_baseline(plan_, site_, session_, stop_, progress_);
  if (!measured) return;  // the first step of training finds the same request
  const Comparison& result = *measured;
  const auto rate = [](const Spread& s) {
    return fmt::format("{:.1f} +- {:.1f}", s.median, s.deviation);
  };
  output_.note(
      fmt::format("baseline: one rank {} examples/sec, {} ranks {}, speed-up {:.2f} +- "
                  "{:.2f}, efficiency {:.1f} %",
                  rate(result.alone), session_.size(), rate(result.together),
                  result.speed_up.median, result.speed_up.deviation, 100 * result.efficiency));
  output_.note(result.verdict);
  const bool enough =
      !options().require_efficiency || result.efficiency >= *options().require_efficiency;
  if (!enough)
    session_.fail_together(fmt::format("the efficiency is {:.3f}, --require-efficiency asks for {}",
                                       result.efficiency, *options().require_efficiency),
                           Exit::inefficient);
}

// Evaluations and limits of time are not for legs: they take the time they take.
LegEnd train_leg(const Leg& leg, Plan& plan,
                 const std::function<std::unique_ptr<Site>()>& make_site, const MpiSession& session,
                 Watchdog& watchdog, const Stopwatch& since_start, WriterProcess& writer) {
  watchdog.progress().enter(Activity::init);
  plan.options.resume = leg.resume;
  plan.options.checkpoint_dir = leg.directory;
  plan.options.max_time_s.reset();
  plan.evaluation.reset();
  const std::unique_ptr<Site> site = make_site();
  const std::unique_ptr<Output> silent = make_silent_output();
  WriterProcess none;
  Job job(plan, *site, session, watchdog, *silent, since_start, leg.steps);
  job.run(leg.saves ? writer : none);
  watchdog.progress().enter(Activity::init);
  return job.end();
}

}  // namespace

int run(const Options& options, const ThreadPlan& threads, const MpiSession& session,
        WriterProcess& writer, const Stopwatch& since_start) {
  const std::unique_ptr<Output> output =
      session.rank() == 0 ? make_output(options, standard_sinks(options)) : make_silent_output();
  output->note(threads.text);
  Watchdog watchdog(session, options.final_save_timeout_s);
  Options chosen = options;
  const DeviceChoice device = choose_device(options.device, session);
  if (device.gpu) choose_gpu_defaults(chosen, session.hosts());
  if (!device.why_not.empty()) output->note("training on CPUs: " + device.why_not);
  const auto make = [&] {
    return make_plan(chosen, static_cast<int>(threads.cpus.size()), session.rank(), session.size(),
                     [&](const std::string& line) { output->note(line); });
  };
  Plan plan = all_or_none(make, session);
  require_agreement(claims(plan), session);  // before anything else that ranks do together
  for (const std::string& line : plan.hints()) output->note(line);
  const auto make_site = [&] {
    return plan.options.device == Device::cuda
               ? make_gpu_site(plan, session, watchdog.progress())
               : make_cpu_site(plan, threads, session, watchdog.progress());
  };
  if (plan.options.verify_resume)
    return verify_resume(
        Options(plan.options), session, [&](const std::string& line) { output->note(line); },
        [&](const Leg& leg) {
          return train_leg(leg, plan, make_site, session, watchdog, since_start, writer);
        });
  const std::unique_ptr<Site> site = make_site();
  for (const std::string& line : site->notes()) output->note(line);
  Job job(plan, *site, session, watchdog, *output, since_start);
  return job.run(writer);
}

}  // namespace ringtrain
