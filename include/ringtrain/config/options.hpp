#pragma once
// Room `config`: the command line. One table (option_table.cpp) has each option's name, text,
// default and reader; --help, the manual page, completion, configuration files and what checkpoints
// keep come from it.
//
// Threads: the main thread, before MPI starts. Nothing is collective.
//
// A value that cannot be is Error(Exit::usage), with the nearest that can.
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ringtrain/allreduce/communicator/compression.hpp"
#include "ringtrain/allreduce/ring/ring.hpp"
#include "ringtrain/base/memory/view.hpp"
#include "ringtrain/optim/lr_schedule.hpp"
#include "ringtrain/optim/optimizer.hpp"

namespace ringtrain::config {

enum class Device { automatic, cpu, cuda };
enum class Precision { automatic, fp32, bf16, fp16 };
enum class OnNan { stop, skip };
enum class Allreduce { automatic, ring, mpi, nccl };
enum class ShowProgress { automatic, on, off };
enum class Watching { on, off };
/// Whether a GPU computes parts of BatchNorm inside its convolutions.
enum class ConvolutionFusion { automatic, off };
enum class Shell { bash, zsh, fish };
/// Which weights of a file count where nothing is trained, and to start a training from.
enum class Weights {
  automatic,  ///< their moving average where the file has one
  raw,        ///< as the last step left them
  ema,        ///< the average, or the file is refused
};

/// Of an evaluation: larger accuracies are better, smaller losses are.
enum class Metric { top1, top5, loss };
struct MetricGoal {
  Metric metric = Metric::top1;
  double value = 0;

  /// Whether `reached` is as good.
  bool is_met_by(double reached) const {
    return metric == Metric::loss ? reached <= value : reached >= value;
  }
};

/// Which share of each class an evaluation gets.
struct ValSplit {
  double share = 0;
  std::optional<std::uint64_t> seed = {};  ///< of the choice; unset: the run's
};
enum class ExportFormat { onnx, safetensors, torch };

/// When a checkpoint is due: after so much time, or, where `steps` is set, after so many steps.
struct CheckpointEvery {
  double seconds = 60;
  std::int64_t steps = 0;
};

/// Where training starts from.
struct Resume {
  enum class From { newest, scratch, file };
  From from = From::newest;
  std::string file = {};
};

/// Who says how sums travel between hosts.
struct Tune {
  enum class Mode {
    automatic,  ///< what the links show to be fastest
    all,        ///< also in which format, which changes gradients by a little
    off,        ///< nobody: the default plan
    given,      ///< the user: `plan`
  };
  Mode mode = Mode::automatic;
  allreduce::SumPlan plan = {};

  bool measures() const { return mode != Mode::off && mode != Mode::given; }
};

/// How the samples of a step are divided among the ranks.
struct Shares {
  enum class Mode {
    equal,
    automatic,  ///< as a trial before the first step shows to be fastest
    given,      ///< in proportion to `weights`
  };
  Mode mode = Mode::equal;
  std::vector<double> weights = {};  ///< one a rank or one a host, each above 0
};

/// Class weights that follow from how many images each class has.
inline constexpr const char* balanced_weights = "balanced";

/// A factor for the parameters of some names.
struct NameFactor {
  std::string pattern = {};  ///< `*`, `?` and `[...]` as in a shell; `*` takes dots, too
  double factor = 1;

  friend bool operator==(const NameFactor&, const NameFactor&) = default;
};

/// How parameters differ in learning rate and weight decay. What is unset is as in the checkpoint
/// to go on from.
struct Factors {
  std::vector<NameFactor> lr = {}, decay = {};  ///< of several that match, the last one counts
  std::optional<double> head_lr = {};      ///< the peak rate of the layer that gives the logits
  std::optional<double> layer_decay = {};  ///< a layer's rate over that of the next one

  friend bool operator==(const Factors&, const Factors&) = default;
};

/// The network to train where nothing names one.
inline constexpr const char* usual_model = "cifar10_cnn";

/// What the user asked for; every default is written here and nowhere else. Immutable once parsed.
/// What is unset comes from the model's recipe, the data set or the machine, as `--help` says.
struct Options {
  /// Of the zoo. Empty where `model_file` is not, and where neither was given: then a checkpoint
  /// brings the network, or it is usual_model.
  std::string model;
  std::string model_file;
  std::optional<int> classes;
  std::string recipe;     ///< OPTION=VALUE ... of a model file's frame; empty: as it says
  std::string init_from;  ///< a checkpoint, or published weights; empty: weights are drawn
  bool sync_batchnorm = false;

  std::string data = "shapes";
  std::string val_data;  ///< to evaluate on; empty: `data` has that, too
  std::string labels;    ///< a CSV file in place of folders; empty: folders are classes
  std::string freeze;    ///< patterns of names, by model::freeze(); empty: nothing
  std::optional<ValSplit> val_split;  ///< or this share of each class in `data`
  bool balance = false;               ///< classes come equally often, rare ones again and again
  std::optional<int> data_threads;
  std::uint64_t seed = 1;

  std::optional<int> ranks;  ///< to start on this machine; unset: as a launcher started them
  std::optional<int> epochs;
  std::optional<std::int64_t> steps;
  std::optional<int> batch, global_batch;
  int accumulate = 1;
  std::optional<Shares> shares;  ///< unset: those of the checkpoint to go on from, else equal
  std::optional<int> as_ranks;   ///< whose images a step are trained on, by however many there are
  int eval_every = 1;
  std::optional<MetricGoal> until;  ///< training ends with the evaluation that meets it
  std::optional<int> patience;      ///< evaluations without a better one, after which it ends
  bool eval_only = false;           ///< also where `predict` is given
  /// Files, folders or one data set, whose classes are told instead of an evaluation.
  std::vector<std::string> predict;
  std::string output = "-";  ///< where they go: FILE.csv, FILE.jsonl or standard output as CSV
  int top_k = 5;
  std::string class_names;  ///< a file, a name a line; empty: the network's
  Weights weights = Weights::automatic;
  std::optional<int> check_every;

  Device device = Device::automatic;
  Precision precision = Precision::automatic;
  std::optional<int> threads;
  ConvolutionFusion fusion = ConvolutionFusion::automatic;
  bool deterministic = false, autotune = false, no_graph = false, nccl_register = false;
  bool nccl_blocking = false;

  std::optional<optim::OptimizerKind> optimizer;
  std::optional<double> lr;
  std::optional<optim::Decay> lr_schedule;
  std::optional<double> warmup_epochs, weight_decay, label_smoothing, clip_grad, ema;
  std::string class_weights;  ///< "balanced", or a CSV file; empty: all are 1
  Factors factors;
  OnNan on_nan = OnNan::stop;

  Allreduce allreduce = Allreduce::automatic;
  std::optional<double> bucket_mb;
  Element gradient_dtype = Element::fp32;
  allreduce::Compression compress;
  bool shard_optimizer = false;
  Tune tune;
  std::string interface;  ///< empty: any
  Watching watchdog = Watching::on;
  double watchdog_silence_s = 10;

  int restarts = 0;  ///< for the supervisor, which runs without MPI and without this program
  bool without_lost_hosts = false;

  std::string checkpoint_dir;  ///< empty: no checkpoints
  CheckpointEvery checkpoint_every;
  int keep = 3;
  std::optional<Metric> keep_best;
  Resume resume;
  double final_save_timeout_s = 120;
  std::optional<double> max_time_s;
  std::optional<int> verify_resume;  ///< steps

  int log_every = 10;
  double slow_below = 0.8;                             ///< of the speed that the run had; 0: never
  std::string metrics, tensorboard, report, timeline;  ///< empty: none
  int timeline_spans = 32'768;                         ///< a rank
  bool quiet = false;
  ShowProgress progress = ShowProgress::automatic;

  bool baseline = false, doctor = false, plan = false;
  std::optional<double> require_efficiency;
  std::optional<std::string> plan_device;  ///< a GpuModel's name

  bool predicts() const { return !predict.empty(); }
  /// Whether evaluations decide what is kept, or when training ends.
  bool follows_best() const { return keep_best || until || patience; }
  /// What others read from standard output has no line of the log in it.
  bool output_is_piped() const { return predicts() && output == "-"; }
};

/// What --export writes.
struct Export {
  ExportFormat format = ExportFormat::onnx;
  std::string file = {};
  bool fold_batch_norm = false;  ///< into the layers before them
  bool uint8_input = false;      ///< normalises images itself
};

/// What one call of the program is to do. All but `train` are local: they need no other rank.
struct Command {
  enum class Action {
    train,
    show_text,
    print_config,
    list_models,
    print_model,
    inspect,
    plan,
    pack,
    write_export
  };

  Action action = Action::train;
  Options options = {};   ///< of train, print_config, print_model, plan, pack and write_export
  std::string text = {};  ///< of show_text, ready to print
  /// With Options::ranks, of train: the program and the words that each rank is started with.
  std::vector<std::string> rank_command = {};
  std::string inspect = {};  ///< the checkpoint file, or a folder of them
  std::string pack_source = {}, pack_target = {};
  std::optional<int> pack_short_side = {};
  Export exported = {};

  bool is_local() const { return action != Action::train; }
};

/// Reads the command line and the file that `--config` names; the command line wins. Throws
/// Error(Exit::usage) naming the option, what is wrong and what would be right. Files, data and
/// host are not looked at. `before_reading` is called with the path before anything asks for that
/// file, "-" for standard input; what it throws is thrown.
Command parse(int argc, const char* const* argv,
              const std::function<void(const std::string&)>& before_reading = {});

/// A configuration file, in TOML, that says `options`; what is unset stands as a comment.
std::string config_text(const Options& options);

/// The options that change the numbers, as JSON with sorted keys, one text for equal settings.
/// Pass options whose unset values were filled in from the recipe, to compare what really ran.
/// Directories are left out: the same data may lie elsewhere. `training_data` tells the samples
/// apart from others, as "10000 samples, <hash>"; empty: it is not known.
std::string canonical_config(const Options& options, const std::string& training_data = "");

/// The factors in a canonical configuration; what cannot be read is unset.
Factors factors_in(std::string_view config);
/// What the user would type for them: "--layer-decay 0.75"; empty: nothing is set.
std::string factors_text(const Factors& factors);

/// "option: old -> new" for each option in which two canonical configurations differ.
std::vector<std::string> differences(std::string_view before, std::string_view after);

}  // namespace ringtrain::config
