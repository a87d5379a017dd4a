#pragma once
// Room `train/plan`: turns options, model, data and ranks into a RunPlan, which all other rooms of
// `train` read. What does not fit together is an Error here, before any memory is taken.
//
// Thread: main. Equal on all ranks but for a rank's own share; collective only where it says so.
//
// From here on nothing reads the options that a user left out: recipes have completed them.
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ringtrain/allreduce/communicator/compression.hpp"
#include "ringtrain/config/options.hpp"
#include "ringtrain/io/dataset/dataset.hpp"
#include "ringtrain/io/loader/loader.hpp"
#include "ringtrain/model/graph.hpp"
#include "ringtrain/model/passes.hpp"
#include "ringtrain/model/zoo.hpp"
#include "train/plan/model_source.hpp"
#include "train/plan/step_settings.hpp"

namespace ringtrain::train {

inline constexpr int most_samples = 100'000'000;  ///< in a step

/// What a run will do: the user's options completed by the model's recipe, the data set and the
/// number of ranks. The same on every rank but for `share`.
struct RunPlan {
  config::Options options;  ///< with every recipe default filled in
  model::Model model;
  std::string network;                      ///< the model file that makes it
  std::unique_ptr<io::Dataset> training;    ///< null with --eval-only
  std::unique_ptr<io::Dataset> evaluation;  ///< null where the data has no such part
  int ranks = 1;
  int hosts = 1;
  int global_batch = 0;        ///< samples of all ranks and micro-steps in one step
  int micro_batch = 0;         ///< of all ranks in one micro-step
  std::vector<int> shares;     ///< of a micro-step, of each rank
  io::BatchShard share;        ///< this rank's
  bool keeps_shares = false;   ///< checkpoints say them, also where they are equal
  bool keeps_skipped = false;  ///< the checkpoint that it goes on from counts steps left out
  bool usual_bucket = false;   ///< --bucket-mb was not given
  bool goes_on = false;        ///< a checkpoint's training
  int data_threads = 1;
  double epochs = 0;  ///< where training ends, unless --steps says otherwise
  optim::OptimizerSettings optimizer;
  optim::LearningRate learning_rate;
  std::vector<float> class_weights = {};      ///< of training's loss, by label; none: all are 1
  io::Augmentation augmentation;              ///< of training
  io::Augmentation evaluated;                 ///< how evaluation sees an image
  std::vector<std::string> class_names = {};  ///< of the network, by label, for --predict
  /// The network for the sizes of these, where they are others than the model's.
  std::optional<model::Graph> training_graph = {}, evaluation_graph = {};

  /// That of training, else that of the evaluation.
  const io::Dataset& data() const { return training ? *training : *evaluation; }
  /// The network as training, or evaluation, computes it: with the parameters of model.graph.
  const model::Graph& graph(model::Mode mode) const;
  /// Whether BatchNorm normalises by the samples of all ranks.
  bool batch_norms_together() const { return options.sync_batchnorm && ranks > 1; }
  /// Whether the ranks share the optimizer's work and state.
  bool shards_optimizer() const {
    return options.shard_optimizer && ranks > 1 && !options.eval_only;
  }
  /// Whether the optimizer's arithmetic depends on the number of updates.
  bool counts_updates() const;
  /// Whether checkpoints have to say how many steps were left out: where that matters, and steps
  /// may be, or were.
  bool counts_skipped() const {
    return counts_updates() && (options.on_nan == config::OnNan::skip || keeps_skipped);
  }
  /// Whether they are what they are without --shares.
  bool shares_are_equal() const;
  /// Instead of the shares so far: at least one sample each, micro_batch in all.
  void take_shares(std::vector<int> all, int rank);
  StepSettings trainer() const;
  io::LoaderOptions loader(io::Split split) const;
  /// For training without the other ranks, on batches as large as this rank's share.
  io::LoaderOptions lone_loader() const;
  std::size_t bucket_bytes() const;
  /// How gradients travel from now on; with it goes the bucket, unless the user gave one.
  void set_gradient_format(Element element, const allreduce::Compression& compression);
  /// Whether gradients travel compressed.
  bool compresses() const { return options.compress && hosts > 1; }
  /// Bytes in which these gradients travel. They are of whole tensors.
  double gradient_bytes(const Range& gradients) const;
  /// What a rank gives to the sums of a step: gradients, as they travel, and statistics.
  double sum_bytes() const;
  /// The learning rate to begin with for a global batch that is so many times as large. It grows
  /// with the batch, Adam's with its root (Goyal et al. 2017, arXiv:1706.02677; Malladi et al.
  /// 2022, arXiv:2205.10287). A recipe's rate that is never scaled counts for the recipe's batch
  /// where that is larger.
  double learning_rate_of_batch(double times) const;
  /// The recipe's own rate for that batch; none where another optimizer than the recipe's is used.
  std::optional<double> recipe_rate_of_batch(double times) const;
  /// How many parameters have rates of their own; empty: none has.
  std::string rates_line() const;
  /// What the user should know of the plan before training, line by line.
  std::vector<std::string> hints() const;
  /// Whether training ends at `position`. Epochs are counted in samples, so that their end does not
  /// move when a resumed run has another global batch.
  bool done(const Position& position) const;
  /// The step that training ends with when it goes on from `position`.
  std::uint64_t last_step(const Position& position) const;
  /// Whether the step that led to `position` completed an epoch after which to evaluate.
  bool evaluation_due(const Position& position) const;
};

/// Takes lines for the user.
using Tell = std::function<void(const std::string&)>;

/// Throws Error (Exit::usage) when this CPU does not train in `precision`.
void check_cpu_precision(config::Precision precision);
/// Throws Error with a code the user can act on when options, model, data and ranks do not fit.
/// `cpus`: how many processors this rank has, for loader threads. `progress` hears which files are
/// read, and may be null. `saved`: the network that runs where the options name none.
RunPlan make_run_plan(
    const config::Options& options, int cpus, int rank, int ranks,
    const Tell& tell = [](const std::string&) {}, WorkProgress* progress = nullptr,
    const std::optional<SavedNetwork>& saved = std::nullopt);

/// `options` with what the recipe says where they say nothing, for a run of `ranks` ranks. What the
/// data or the device decide stays open.
config::Options with_recipe(const config::Options& options, const model::Model& model, int ranks);

/// How an image becomes the network's input in evaluation, as JSON (checkpoint-format.md).
std::string input_text(const RunPlan& plan);

/// What can be planned of a network without data: the run of `ranks` ranks, each on a host of its
/// own. A rank has the batch of the options, else `usual_batch`, else the recipe's. Throws Error
/// (usage) as ModelSource::make() does, and where the recipe's sizes of images would change the
/// network's parameters.
RunPlan plan_without_data(const ModelSource& source, const config::Options& options, int ranks,
                          std::optional<int> usual_batch = std::nullopt);

/// --bucket-mb on GPUs, where it is not given. NCCL's latency grows with the ranks, and fewer sums
/// hide more of it; what CPUs compress is hidden the better the smaller the last sum is.
double usual_gpu_bucket_mb(int hosts, bool compresses);

/// The gradient's tensors, in the order of the flat buffer, as --compress takes them: a row for
/// each output of a layer; what has one extent is a single row.
std::vector<allreduce::GradientMatrix> gradient_matrices(const model::Graph& graph);

}  // namespace ringtrain::train
