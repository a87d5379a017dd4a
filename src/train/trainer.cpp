#include "train/trainer.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <exception>
#include <system_error>

#include "ringtrain/base/error.hpp"
#include "ringtrain/base/hash.hpp"
#include "ringtrain/base/program.hpp"
#include "ringtrain/base/text.hpp"
#include "ringtrain/config/option_values.hpp"
#include "ringtrain/io/checkpoint/checkpoint_reader.hpp"
#include "train/checkpoint/warm_start.hpp"
#include "train/evaluation.hpp"
#include "train/performance/baseline_run.hpp"
#include "train/performance/batch_shares.hpp"
#include "train/performance/gradient_format.hpp"

namespace ringtrain {
namespace {

// What a resume must find again for each sample to come once an epoch.
std::string training_data(const RunPlan& plan) {
  return fmt::format("{} samples, {}", plan.training->size(), hex(plan.training->manifest_hash()));
}

std::string absolute_text(const std::filesystem::path& path) {
  std::error_code failure;
  return path.empty() ? "" : std::filesystem::absolute(path, failure).string();
}

bool lies_in(const std::filesystem::path& directory, const std::filesystem::path& file) {
  std::error_code failure;
  return std::filesystem::equivalent(directory, std::filesystem::absolute(file).parent_path(),
                                     failure);
}

}  // namespace

Trainer::Trainer(const RunPlan& plan, TrainingEngine& engine, const MpiSession& session,
                 Watchdog& watchdog, Reporter& output, const Stopwatch& since_start,
                 std::uint64_t most_steps)
    : run_watch_(since_start),
      session_(session),
      watchdog_(watchdog),
      progress_(watchdog.progress()),
      output_(output),
      plan_(plan),
      engine_(engine),
      most_steps_(most_steps),
      config_(canonical_config(plan.options, training_data(plan))),
      plans_(with_shares(engine.plans(), plan)),
      efficiency_(plan, engine, session, output) {}

bool Trainer::resume(const Resume& how) {
  const auto say = [this](const std::string& line) { output_.note(line); };
  const Wanted wanted = options().eval_only ? Wanted::evaluated : Wanted::everything;
  const auto resumed =
      ringtrain::resume(how, wanted, options().checkpoint_dir, graph().structure_hash(),
                        engine_.state(), engine_.communicator(), session_, say, &progress_);
  if (!resumed) return false;
  require_settled_as(resumed->metadata);
  start_ = {resumed->metadata.step, resumed->metadata.position};
  resumed_from_ = how.from == Resume::From::file
                      ? std::filesystem::path(how.file)
                      : options().checkpoint_dir / std::filesystem::path(resumed->file);
  resumed_lineage_ = resumed->lineage;
  if (!checkpoint_writer_.idle() && !resumed->file.empty() &&
      (how.from == Resume::From::newest || lies_in(options().checkpoint_dir, how.file)))
    checkpoint_writer_.protect(resumed->file);
  if (how.from == Resume::From::newest) progress_.saved(start_.step);
  output_.note(fmt::format("resumed from {} at step {}", resumed->file, start_.step));
  if (!options().init_from.empty())
    output_.note("--init-from is for the start of training: not used");
  if (options().eval_only) return true;  // the rest is about what training makes of it
  for (const std::string& change : changes_since(resumed->metadata.config))
    output_.note("changed since that checkpoint: " + change);
  if (resumed->metadata.global_batch != std::uint64_t(plan_.global_batch))
    output_.note(fmt::format("changed since that checkpoint: images a step, all ranks: {} -> {}",
                             resumed->metadata.global_batch, plan_.global_batch));
  if (resumed->metadata.plans != plans_)
    output_.note(
        fmt::format("saved with {}, going on with {}: equal up to rounding, not to the bit",
                    brief(resumed->metadata.plans), plans_));
  if (!resumed->kept_dropped.empty())
    output_.note("what --compress had left out of the sums begins anew, as " +
                 resumed->kept_dropped + ": bits differ from a training that was not interrupted");
  if (resumed->metadata.world_size != std::uint64_t(session_.size()))
    output_.note(fmt::format("saved by {}, going on with {}: the order of samples stays",
                             ranks_text(static_cast<int>(resumed->metadata.world_size)),
                             session_.size()));
  return true;
}

// Shares and gradient format were settled by the checkpoint that was the newest then.
void Trainer::require_settled_as(const CheckpointMetadata& saved) const {
  const bool other_shares = settles_otherwise(saved.plans, plan_);
  const GradientFormat format{options().gradient_dtype, options().compress};
  const bool other_format = options().tune.mode == Tune::Mode::all && session_.hosts() > 1 &&
                            format_in(saved.config).value_or(format) != format;
  if (options().eval_only || (!other_shares && !other_format)) return;
  session_.fail_together(
      "resume: the newest checkpoint is another one than when this job started, with other shares "
      "or another gradient format; start the job again",
      Exit::locked);
}

// Only rank 0 hears what is saved from here on.
void Trainer::tell_context() const {
  FaultContext& context = session_.fault_context();
  context.at_step(start_.step);
  if (session_.rank() == 0 || options().checkpoint_dir.empty())
    context.resume_from(absolute_text(resumed_from_));
}

void Trainer::take_lineage() {
  if (checkpoint_writer_.idle()) return;  // nothing is saved, or by rank 0
  const std::string lineage = resumed_lineage_ ? *resumed_lineage_ : new_lineage();
  require_own_folder(options().checkpoint_dir, lineage,
                     resumed_lineage_ ? std::optional(start_.step) : std::nullopt, &progress_);
  checkpoint_writer_.set_lineage(lineage);
}

bool Trainer::start_from(const std::string& file) {
  if (file.empty()) return false;
  const Heads heads = options().eval_only ? Heads::must_fit : Heads::may_differ;
  output_.note(init_from(file, heads, graph(), engine_.state(), engine_.communicator(), session_,
                         &progress_));
  return true;
}

bool Trainer::prepare(WriterProcess& writer) {
  progress_.enter(Activity::resume, options().checkpoint_dir);
  progress_.forget_steps();
  if (!options().eval_only) open_checkpoints(writer);
  const bool resumed = resume(options().resume);
  tell_context();
  take_lineage();
  return resumed || start_from(options().init_from);
}

int Trainer::rehearse(WriterProcess& writer) {
  const bool loaded = prepare(writer);
  if (options().eval_only && !loaded) fail_without_weights();
  try_sum();
  engine_.close();
  output_.note("training would begin: model, memory, sums and checkpoints are ready on all ranks");
  progress_.enter(Activity::exit);
  return 0;
}

// A sum is what finds out whether ranks reach each other the way that sums go; the broadcast behind
// it waits for its end, also on GPUs.
void Trainer::try_sum() {
  progress_.enter(Activity::all_reduce);
  Communicator& ranks = engine_.communicator();
  const Buffer numbers = ranks.memory().allocate(64);
  ranks.start_sum(numbers);
  ranks.finish();
  ranks.broadcast(numbers, 0);
  ranks.check();
}

int Trainer::run(WriterProcess& writer) {
  const bool loaded = prepare(writer);
  const StartRecord start = start_record();
  hosts_ = start.hosts;
  output_.start(start);
  progress_.enter(Activity::init);
  if (options().baseline) {
    compare_with_one_rank();
  } else if (!options().eval_only && most_steps_ == 0) {
    progress_.enter(Activity::open, cache_folder());
    efficiency_.recall(start_);
  }
  const int code = options().eval_only ? evaluate_only(loaded) : train();
  progress_.enter(Activity::ranks);
  engine_.close();
  progress_.enter(Activity::exit);
  return code;
}

// A checkpoint's options are text from a file: if they cannot be read, that is no failure.
std::vector<std::string> Trainer::changes_since(const std::string& config) const {
  try {
    return differences(config, config_);
  } catch (const std::exception&) {
    return {"its options cannot be compared"};
  }
}

void Trainer::open_checkpoints(WriterProcess& writer) {
  if (options().checkpoint_dir.empty()) return;
  WriterOptions writer_options;
  writer_options.run_id = run_id(session_.host());
  writer_options.keep = options().keep;
  writer_options.last_save_timeout_s = options().final_save_timeout_s;
  writer_options.tell = [this](const std::string& text) { output_.note(text); };
  checkpoint_writer_ =
      CheckpointWriter(writer, options().checkpoint_dir, engine_.state().layout(), writer_options);
}

// Of any step: what does not change in a run.
CheckpointMetadata Trainer::metadata() const {
  const Options& o = options();
  CheckpointMetadata constant;
  constant.seed = o.seed;
  constant.world_size = session_.size();
  constant.global_batch = plan_.global_batch;
  constant.model = plan_.model.name;
  constant.model_hash = graph().structure_hash();
  constant.config = config_;
  constant.plans = plans_;
  constant.buckets = engine_.bucket_bounds();
  constant.optimizer = fmt::format(
      R"({{"momentum":{},"mean_square_decay":{},"beta1":{},"beta2":{},"epsilon":{},"trust_coefficient":{}}})",
      plan_.optimizer.momentum, plan_.optimizer.mean_square_decay, plan_.optimizer.beta1,
      plan_.optimizer.beta2, plan_.optimizer.epsilon, plan_.optimizer.trust_coefficient);
  return constant;
}

CheckpointManager Trainer::make_checkpoints() {
  return {std::move(checkpoint_writer_),
          engine_.state_copy(),
          metadata(),
          options().checkpoint_every,
          plan_.training->size(),
          [this](const SaveEvent& event, double stall) {
            if (event.kind == SaveEvent::Kind::saved) note_saved(event);
            log_->save(event, stall);
          },
          {[this](bool mine) {
             session_.barrier_asleep();  // rank 0 may wait for a slot
             return !session_.broadcast(mine ? "save" : "").empty();
           },
           options().final_save_timeout_s}};
}

// The writer tells how long it took, and is heard after a step.
void Trainer::note_saved(const SaveEvent& event) {
  progress_.saved(event.step);
  session_.fault_context().resume_from(
      absolute_text(std::filesystem::path(options().checkpoint_dir) / event.file));
  if (Timeline* const timeline = progress_.timeline())
    timeline->add(Doing::save, Timeline::Clock::now() - Timeline::length(event.seconds),
                  event.seconds, event.step, Row::writer);
}

StartRecord Trainer::start_record() const {
  return {config_, program_hash(), session_.size(), session_.gather(session_.host()),
          static_cast<std::int64_t>(start_.step)};
}

int Trainer::exit_code() const { return signal_ != 0 ? 128 + signal_ : 0; }

void Trainer::require_efficiency() const {
  if (exit_code() == 0) efficiency_.require(log_->times());
}

LegEnd Trainer::end() const {
  LegEnd end{.start = start_, .end = end_, .resumed_from = resumed_from_, .exit_code = exit_code()};
  std::vector<TensorInfo> tensors;
  for (const TensorPlace& place : engine_.state().layout().tensors) {
    tensors.push_back(place.info);
    end.tensors.push_back(place.info.name);
  }
  end.hashes = engine_.state().hashes(engine_.communicator());
  end.state_hash = state_hash(at(metadata(), end_, plan_.training->size()), tensors, end.hashes);
  return end;
}

void Trainer::compare_with_one_rank() {
  const auto measured = measure_baseline(plan_, engine_, session_, stop_);
  if (!measured) return;  // the first step of training finds the same request
  const ScalingResult& result = *measured;
  for (const std::string& line : told(result, session_.size())) output_.note(line);
  output_.baseline(result);
  efficiency_.keep(result);
  const bool enough =
      !options().require_efficiency || result.efficiency >= *options().require_efficiency;
  if (!enough)
    session_.fail_together(fmt::format("the efficiency is {:.3f}, --require-efficiency asks for {}",
                                       result.efficiency, *options().require_efficiency),
                           Exit::inefficient);
}

}  // namespace ringtrain
