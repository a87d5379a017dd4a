#include "train/run_checkpoints.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "ringtrain/base/hash.hpp"
#include "ringtrain/base/program.hpp"
#include "train/checkpoint/sharded_checkpoints.hpp"
#include "train/performance/batch_shares.hpp"

namespace ringtrain::train {
namespace {

// What a resume must find again for each sample to come once an epoch.
std::string training_data(const RunPlan& plan) {
  if (!plan.training) return "";
  return fmt::format("{} samples, {}", plan.training->size(), hex(plan.training->manifest_hash()));
}

}  // namespace

RunCheckpoints::RunCheckpoints(const RunContext& run, TrainingEngine& engine)
    : run_(run),
      engine_(engine),
      config_(config::canonical_config(run.options(), training_data(run.plan))),
      plans_(with_shares(engine.plans(), run.plan)) {}

StartingState RunCheckpoints::start(io::WriterProcess& writer) {
  if (!run_.options().eval_only) open(writer);
  StartingState start = load_state(run_, engine_, writer_, config_, plans_);
  std::error_code failure;
  const auto file =
      std::filesystem::path(run_.options().checkpoint_dir) / start.resumed_from.filename();
  folder_ = std::filesystem::absolute(file, failure).lexically_normal().parent_path().string();
  if (!start.resumed_from.empty() && std::filesystem::equivalent(file, start.resumed_from, failure))
    newest_ = file.filename().string();
  return start;
}

void RunCheckpoints::open(io::WriterProcess& writer) {
  if (run_.options().checkpoint_dir.empty()) return;
  io::WriterOptions options;
  options.run_id = run_id();
  options.keep = run_.options().keep;
  options.last_save_timeout_s = run_.options().final_save_timeout_s;
  options.tell = [this](const std::string& text) { run_.note(text); };
  writer_ = io::CheckpointWriter(writer, run_.options().checkpoint_dir, engine_.state().layout(),
                                 options);
}

std::unique_ptr<CheckpointManager> RunCheckpoints::make_manager(CheckpointManager::Report report) {
  auto tell = [this, report = std::move(report)](const io::SaveEvent& event, double stall_s) {
    using Kind = io::SaveEvent::Kind;
    if (event.kind == Kind::saved) note_saved(event);
    if (event.kind == Kind::moved || event.kind == Kind::back) {
      folder_ = event.file;
      name_resume();
    }
    report(event, stall_s);
  };
  const auto rank_0_says = [this](bool mine) {
    run_.session.barrier_asleep();  // rank 0 may wait for a slot
    return !run_.session.broadcast(mine ? "save" : "").empty();
  };
  const config::Options& options = run_.options();
  Snapshotter& copy = engine_.state_copy();
  if (!copy.together())
    return std::make_unique<CheckpointManager>(std::move(writer_), copy, constant(),
                                               options.checkpoint_every, run_.plan.training->size(),
                                               std::move(tell));
  return std::make_unique<ShardedCheckpointManager>(
      std::move(writer_), copy, constant(), options.checkpoint_every, run_.plan.training->size(),
      std::move(tell), rank_0_says, options.final_save_timeout_s);
}

io::CheckpointMetadata RunCheckpoints::metadata(const Position& position) const {
  return at(constant(), position, run_.plan.training->size());
}

// Of any step: what does not change in a run.
io::CheckpointMetadata RunCheckpoints::constant() const {
  io::CheckpointMetadata constant;
  constant.seed = run_.options().seed;
  constant.world_size = run_.session.size();
  constant.global_batch = run_.plan.global_batch;
  constant.model = run_.plan.model.name;
  constant.model_hash = run_.plan.model.graph.structure_hash();
  constant.network = run_.plan.network;
  constant.class_names = io::class_names_text(run_.plan.training->class_names());
  constant.input = input_text(run_.plan);
  constant.config = config_;
  constant.plans = plans_;
  constant.buckets = engine_.probe().bucket_bounds();
  const auto& o = run_.plan.optimizer;
  constant.optimizer = fmt::format(
      R"({{"momentum":{},"mean_square_decay":{},"beta1":{},"beta2":{},"epsilon":{},"trust_coefficient":{}}})",
      o.momentum, o.mean_square_decay, o.beta1, o.beta2, o.epsilon, o.trust_coefficient);
  return constant;
}

// The writer tells how long it took, and is heard after a step: late, so that two saves could seem
// to overlap.
void RunCheckpoints::note_saved(const io::SaveEvent& event) {
  run_.progress.saved(event.step);
  newest_ = event.file;
  name_resume();
  const auto end = metrics::Timeline::Clock::now();
  run_.progress.record(
      metrics::Phase::checkpoint_write,
      {std::max(heard_, end - metrics::Timeline::length(event.seconds)), end, event.step},
      metrics::Row::writer);
  heard_ = end;
}

// For the line that tells of a fault. Where no path leads to the folder, there is none.
void RunCheckpoints::name_resume() const {
  if (newest_.empty()) return;
  run_.session.fault_context().resume_from(
      folder_.empty() ? "" : (std::filesystem::path(folder_) / newest_).string());
}

}  // namespace ringtrain::train
