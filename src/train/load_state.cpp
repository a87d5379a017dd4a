#include "train/load_state.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <exception>
#include <system_error>

#include "ringtrain/base/error.hpp"
#include "ringtrain/base/hmac.hpp"
#include "ringtrain/base/text.hpp"
#include "ringtrain/config/option_values.hpp"
#include "ringtrain/io/checkpoint/checkpoint_reader.hpp"
#include "train/checkpoint/warm_start.hpp"
#include "train/performance/batch_shares.hpp"
#include "train/performance/gradient_format.hpp"

namespace ringtrain::train {
namespace {

// The name that a file has in `directory`, symbolic links followed; empty where it lies elsewhere.
std::string name_in(const std::filesystem::path& directory, const std::filesystem::path& file) {
  std::error_code failure;
  const auto target = std::filesystem::canonical(file, failure);
  if (failure || !std::filesystem::equivalent(directory, target.parent_path(), failure)) return "";
  return target.filename();
}

// A checkpoint's options are text from a file: if they cannot be read, that is no failure.
std::vector<std::string> changes(const std::string& before, const std::string& now) {
  try {
    return config::differences(before, now);
  } catch (const std::exception&) {
    return {"its options cannot be compared"};
  }
}

// "training-data: 300 samples, b0051f74 -> 312 samples, a3f86cbd" is of other samples.
bool is_of_samples(std::string_view change) {
  constexpr std::string_view start = "training-data: ", arrow = " -> ", end = " samples";
  if (!change.starts_with(start)) return false;
  const auto before = change.substr(start.size());
  const auto after = before.substr(std::min(before.find(arrow), before.size()));
  const auto old = before.find(end), now = after.find(end);
  if (old == before.npos || now == after.npos || old > before.size() - after.size()) return false;
  return before.substr(0, old) != after.substr(arrow.size(), now - arrow.size());
}

/// What load_state() was given.
struct Loading {
  const RunContext& run;
  TrainingEngine& engine;
  io::CheckpointWriter& writer;
  const std::string& config;
  const std::string& plans;

  const config::Options& options() const { return run.options(); }
  StateToLoad target() const {
    return {engine.state(), engine.communicator(), run.session, &run.progress};
  }
};

// Shares and gradient format were settled by the checkpoint that was the newest then.
void require_settled_as(const io::CheckpointMetadata& saved, const Loading& l) {
  const bool other_shares = settles_otherwise(saved.plans, l.run.plan);
  const GradientFormat format{l.options().gradient_dtype, l.options().compress};
  const bool other_format = l.options().tune.mode == config::Tune::Mode::all &&
                            l.run.session.hosts() > 1 &&
                            format_in(saved.config).value_or(format) != format;
  if (l.options().eval_only || (!other_shares && !other_format)) return;
  l.run.session.fail_together(
      "resume: the newest checkpoint is another one than when this job started, with other shares "
      "or another gradient format; start the job again",
      Exit::locked);
}

// What training makes otherwise than the run that saved it.
void note_changes(const Resumed& resumed, const Loading& l) {
  const io::CheckpointMetadata& saved = resumed.metadata;
  for (const std::string& change : changes(saved.config, l.config))
    l.run.note("changed since that checkpoint: " + change +
               (is_of_samples(change) ? "; samples come in another order from here on: in this "
                                        "epoch some come twice, others not at all"
                                      : ""));
  if (saved.global_batch != std::uint64_t(l.run.plan.global_batch))
    l.run.note(fmt::format("changed since that checkpoint: images a step, all ranks: {} -> {}",
                           saved.global_batch, l.run.plan.global_batch));
  if (!same_plans(saved.plans, l.plans, l.run.plan))
    l.run.note(fmt::format("saved with {}, going on with {}: equal up to rounding, not to the bit",
                           brief(saved.plans), l.plans));
  if (!resumed.kept_dropped.empty())
    l.run.note("what --compress had left out of the sums begins anew, as " + resumed.kept_dropped +
               ": bits differ from a training that was not interrupted");
  if (saved.world_size != std::uint64_t(l.run.session.size()))
    l.run.note(fmt::format("saved by {}, going on with {}: the order of samples stays",
                           metrics::ranks_text(static_cast<int>(saved.world_size)),
                           l.run.session.size()));
}

NetworkToLoad network_of(const model::Model& model) {
  return {model.graph.structure_hash(),
          fmt::format("{} for {} classes", model.name, model.classes)};
}

Wanted wanted_by(const config::Options& o) {
  if (!o.eval_only) return Wanted::everything;
  switch (o.weights) {
    case config::Weights::raw:
      return Wanted::raw;
    case config::Weights::ema:
      return Wanted::average;
    default:
      return Wanted::evaluated;
  }
}

std::optional<StartingState> from_checkpoint(const Loading& l) {
  const config::Options& o = l.options();
  const auto say = [&](const std::string& line) { l.run.note(line); };
  const auto resumed = resume(o.resume, wanted_by(o), o.checkpoint_dir,
                              network_of(l.run.plan.model), l.target(), say);
  if (!resumed) return std::nullopt;
  require_settled_as(resumed->metadata, l);
  const bool newest = o.resume.from == config::Resume::From::newest;
  StartingState start{.position = {resumed->metadata.step, resumed->metadata.position},
                      .loaded = true,
                      .resumed_from = o.resume.from == config::Resume::From::file
                                          ? std::filesystem::path(o.resume.file)
                                          : o.checkpoint_dir / std::filesystem::path(resumed->file),
                      .lineage = resumed->lineage,
                      .unreadable = resumed->metadata.unreadable,
                      .best = resumed->metadata.best};
  const std::string kept = newest ? resumed->file : name_in(o.checkpoint_dir, o.resume.file);
  if (!l.writer.idle() && !kept.empty()) l.writer.protect(kept);
  if (newest) l.run.progress.saved(start.position.step);
  l.run.note(fmt::format("resumed from {} at step {}", resumed->file, start.position.step));
  if (!o.init_from.empty()) l.run.note("--init-from is for the start of training: not used");
  if (!o.eval_only) note_changes(*resumed, l);  // an evaluation does not care
  return start;
}

// Inherits what was resumed, or draws a new one.
void take_lineage(const StartingState& start, const Loading& l) {
  if (l.writer.idle()) return;  // nothing is saved, or by rank 0
  const std::string lineage = start.lineage ? *start.lineage : random_token();
  io::require_own_folder(l.options().checkpoint_dir, lineage,
                         start.lineage ? std::optional(start.position.step) : std::nullopt,
                         &l.run.progress);
  l.writer.set_lineage(lineage);
}

// For the line that tells of a fault. Only rank 0 hears what is saved from here on.
void tell_context(const StartingState& start, const Loading& l) {
  FaultContext& context = l.run.session.fault_context();
  context.at_step(start.position.step);
  if (l.run.session.rank() > 0 && !l.options().checkpoint_dir.empty()) return;
  std::error_code failure;
  context.resume_from(start.resumed_from.empty()
                          ? ""
                          : std::filesystem::absolute(start.resumed_from, failure).string());
}

}  // namespace

StartingState load_state(const RunContext& run, TrainingEngine& engine,
                         io::CheckpointWriter& writer, const std::string& config,
                         const std::string& plans) {
  const Loading l{run, engine, writer, config, plans};
  const auto resumed = from_checkpoint(l);
  StartingState start = resumed.value_or(StartingState{});
  tell_context(start, l);
  take_lineage(start, l);
  if (resumed || l.options().init_from.empty()) return start;
  const Heads heads = l.options().eval_only ? Heads::must_fit : Heads::may_differ;
  for (const std::string& line : init_from(l.options().init_from, l.options().weights, heads,
                                           run.plan.model.graph, l.target()))
    run.note(line);
  start.loaded = true;
  return start;
}

}  // namespace ringtrain::train
