#include "ringtrain/config/options.hpp"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <utility>

#include "config/option_table.hpp"
#include "config/version.hpp"
#include "ringtrain/base/error.hpp"
#include "ringtrain/base/text.hpp"
#include "ringtrain/config/option_values.hpp"
#include "ringtrain/model/model_file.hpp"
#include "ringtrain/model/zoo.hpp"

namespace ringtrain::config {
namespace {

/// As CLI11 asks for it.
class FileReader final : public CLI::ConfigTOML {
 public:
  /// `file` names it in messages, once it is known.
  FileReader(const std::vector<OptionEntry>& table, const std::string& file)
      : table_(table), file_(file) {}

  std::vector<CLI::ConfigItem> from_config(std::istream& text) const override {
    std::vector<CLI::ConfigItem> items;
    for (FileLine& line : read_config(text, file_, table_))
      items.push_back({.name = std::move(line.key), .inputs = {std::move(line.value)}});
    return items;
  }

 private:
  const std::vector<OptionEntry>& table_;
  const std::string& file_;
};

ExportFormat export_format(const std::string& word) try {
  return enumerator<ExportFormat>().read(word);
} catch (const BadValue& bad) {
  throw usage_error("--export " + word, bad.what());
}

class Parser {
 public:
  explicit Parser(const std::function<void(const std::string&)>& before_reading);
  Command parse(int argc, const char* const* argv,
                const std::function<void(const std::string&)>& before_reading);

 private:
  void add(const OptionEntry& entry);
  void check_flags() const;
  void check_extras() const;
  std::string value_behind(const std::string& option) const;
  /// On the command line or in the file.
  bool given(const std::string& name) const { return app_.count("--" + name) > 0; }
  /// On the command line. A file may hold every option, as --print-config writes it.
  bool typed(const std::string& name) const;
  void exclude(const std::string& one, const std::string& other, std::string_view why) const;
  void need(const std::string& name, bool kept, std::string_view why) const;
  void check_tildes() const;
  void check_contradictions() const;
  void check_compression() const;
  void check_tuning() const;
  void check_sharding() const;
  void check_checkpoint_options() const;
  void check_export() const;
  void check_supervised() const;
  void expect_known_model() const;
  void take_standard_input(const std::function<void(const std::string&)>& before_reading);

  std::vector<std::string> words_;
  Request request_;
  std::vector<OptionEntry> table_ = option_table(request_);
  std::string config_file_;
  std::string standard_input_;  // a path that has what it said, where --config - asks for it
  CLI::App app_;
};

Parser::Parser(const std::function<void(const std::string&)>& before_reading) {
  app_.set_help_flag();  // ours is printed before anything else is looked at
  app_.allow_extras();
  for (const OptionEntry& entry : table_)
    if (!std::ranges::count(std::array{"config", "export", "pack", "predict"}, entry.name))
      add(entry);
  const auto set_pack = [this](const std::vector<std::string>& directories) {
    request_.pack_source = directories[0];
    request_.pack_target = directories[1];
  };
  app_.add_option_function<std::vector<std::string>>("--pack", set_pack)
      ->expected(2)
      ->type_name("DIR OUT");
  const auto set_predict = [this](const std::vector<std::string>& paths) {
    request_.options.predict = paths;
    request_.options.eval_only = true;
  };
  app_.add_option_function<std::vector<std::string>>("--predict", set_predict)
      ->expected(1, -1)
      ->type_name("PATH...");
  const auto set_export = [this](const std::vector<std::string>& words) {
    request_.exported.format = export_format(words[0]);
    request_.exported.file = words[1];
  };
  app_.add_option_function<std::vector<std::string>>("--export", set_export)
      ->expected(2)
      ->type_name("FORMAT FILE");
  app_.set_config("--config")->take_last()->check([this, before_reading](const std::string& path) {
    config_file_ = path == standard_input_ ? "standard input" : path;
    if (before_reading && path != standard_input_) before_reading(path);
    return why_no_config_file(path, config_file_);
  });
  app_.config_formatter(std::make_shared<FileReader>(table_, config_file_));
}

void Parser::add(const OptionEntry& entry) {
  const std::string option = "--" + entry.name;
  if (entry.is_flag()) {
    const auto set = [&entry](std::int64_t count) { entry.set(count > 0 ? "true" : "false"); };
    app_.add_flag_function(option, set);
    return;
  }
  const auto set = [&entry, option](const std::string& text) {
    try {
      entry.set(text);
    } catch (const BadValue& bad) {
      throw usage_error(fmt::format("{} {}", option, text),
                        bad.what() + foreign_value(entry.name, text));
    }
  };
  // Open MPI 4's mpirun takes a --tune behind the program for its own, so it is no name to teach.
  const std::string names = entry.name == "tuning" ? option + ",--tune" : option;
  CLI::Option* added = app_.add_option_function<std::string>(names, set);
  added->type_name(entry.argument);
  entry.joins ? added->join(',') : added->take_last();
  if (!entry.alone.empty()) added->expected(0, 1)->default_str(entry.alone);
}

void Parser::check_flags() const {
  for (const std::string& word : words_) {
    const std::size_t equals = word.find('=');
    if (!word.starts_with("--") || equals == word.npos) continue;
    const OptionEntry* entry = find_option(table_, word.substr(2, equals - 2));
    if (entry != nullptr && entry->is_flag())
      throw usage_error(word,
                        fmt::format("--{} takes no value; give it or leave it out", entry->name));
  }
}

void Parser::check_extras() const {
  const std::vector<std::string> extras = app_.remaining();
  const auto option =
      std::ranges::find_if(extras, [](const auto& text) { return text.starts_with('-'); });
  if (option != extras.end()) {
    const std::string name = option->substr(0, option->find('='));
    const std::string answer = foreign_option(name, value_behind(*option));
    throw usage_error("unknown option " + name,
                      answer.empty() ? option_hint(name, table_, "--") : answer);
  }
  if (!extras.empty())
    throw usage_error(fmt::format("unexpected argument '{}'", extras.front()),
                      "every value follows the name of its option; train --help lists all");
}

// Of an option that may be any: behind its '=', or the next word.
std::string Parser::value_behind(const std::string& option) const {
  const std::size_t equals = option.find('=');
  if (equals != option.npos) return option.substr(equals + 1);
  const auto found = std::ranges::find(words_, option);
  const bool has_value = found != words_.end() && found + 1 != words_.end();
  return has_value && !found[1].starts_with('-') ? found[1] : "";
}

bool Parser::typed(const std::string& name) const {
  const std::string option = "--" + name;
  return std::ranges::any_of(words_, [&](const std::string& word) {
    return word == option || word.starts_with(option + "=");
  });
}

void Parser::exclude(const std::string& one, const std::string& other, std::string_view why) const {
  if (!given(one) || !given(other)) return;
  throw usage_error(fmt::format("--{} with --{}", one, other),
                    std::string(why) + (given("config") ? " (see also the --config file)" : ""));
}

// Shells replace ~ only where a word begins: not in --data=~/x, images:~/x or a file.
void Parser::check_tildes() const {
  for (const OptionEntry& entry : table_) {
    const std::string &kind = entry.argument, value = entry.value();
    const bool is_path = kind.find("FILE") != kind.npos || kind.find("DIR") != kind.npos;
    const bool is_spec = kind == "SPEC" || entry.name == "pack";
    if (!is_path && !is_spec) continue;
    const std::string path = is_spec ? value.substr(value.find(':') + 1) : value;
    if (path == "~" || path.starts_with("~/"))
      throw usage_error(fmt::format("--{} {}", entry.name, value),
                        "the shell left ~ as it is; write $HOME, or the whole path");
  }
}

void Parser::need(const std::string& name, bool kept, std::string_view why) const {
  if (typed(name) && !kept) throw usage_error("--" + name, why);
}

void Parser::check_contradictions() const {
  const Options& o = request_.options;
  exclude("model", "model-file", "both name the network; give one of them");
  exclude("val-data", "val-split", "both say what is evaluated on; give one of them");
  exclude("epochs", "steps", "both are the length of training; give one of them");
  exclude("predict", "export", "each is all that a run does; give one of them");
  exclude("batch", "global-batch", "one follows from the other and the ranks; give one of them");
  need("require-efficiency", !o.eval_only && !o.verify_resume,
       "judges training, but this run does not train; leave it out");
  for (const char* name : {"keep-best", "until", "patience"})
    need(name, !o.eval_only, "follows a training's evaluations, but this run does not train");
  if (o.eval_every == 0)
    for (const char* name : {"keep-best", "until", "patience"})
      need(name, false,
           "follows evaluations, but --eval-every 0 leaves one, at the end; leave one out");
  need("progress", !o.quiet || o.progress != ShowProgress::on,
       "on contradicts --quiet; give one of them");
  if (o.factors.layer_decay == 0)
    throw usage_error("--layer-decay 0",
                      "would leave all but the head as it is, at full cost: --freeze '*,!HEAD' "
                      "costs less (docs/guide/fine-tuning.md)");
  if (o.balance && o.class_weights == balanced_weights)
    throw usage_error("--balance with --class-weights balanced",
                      "each alone makes up for rare classes; give one of them");
  if (o.eval_only && o.baseline)
    throw usage_error("--eval-only with --baseline",
                      "the baseline measures training; give one of them");
  if (o.verify_resume && (o.eval_only || o.baseline))
    throw usage_error(
        o.eval_only ? "--verify-resume with --eval-only" : "--verify-resume with --baseline",
        "each is all that a run does; give one of them");
  for (const char* name : {"output", "top-k", "class-names"})
    need(name, o.predicts(), "says how --predict PATH... tells classes; add it");
  need("weights", o.eval_only || !o.init_from.empty(),
       "says what is evaluated or started from, but a training that goes on has all; leave it out");
  need("val-data", !o.predicts(), "is what an evaluation reads; --predict reads its PATHs");
  need("without-lost-hosts", given("restarts"), "says how --restarts N starts again; add it");
  need("timeline-spans", !o.timeline.empty(), "says how much --timeline FILE keeps; add it");
  if (o.verify_resume && !o.timeline.empty())
    throw usage_error("--verify-resume with --timeline",
                      "it proves bits and times nothing; give one of them");
  need("plan-device", o.plan, "says what --plan is for; add it");
  const bool on_cpus = o.device == Device::cpu || (o.plan && !o.plan_device);
  if (o.precision == Precision::fp16 && on_cpus)
    throw usage_error(
        "--precision fp16",
        "CPUs train in auto, fp32, bf16; fp16 is for GPUs, here or --plan-device GPU");
  if (o.gradient_dtype != Element::fp32 && o.allreduce == Allreduce::mpi)
    throw usage_error("--gradient-dtype with --allreduce mpi",
                      "MPI sums in fp32; --allreduce ring rounds what travels between hosts");
  check_compression();
  check_sharding();
  check_tuning();
  check_checkpoint_options();
}

// Ranks pass new weights on: on CPUs in the place of sums, on GPUs behind them.
void Parser::check_sharding() const {
  const Options& o = request_.options;
  if (!o.shard_optimizer) return;
  if (o.gradient_dtype != Element::fp32)
    throw usage_error("--shard-optimizer with --gradient-dtype",
                      "ranks pass new weights on, which stay in fp32; give one of them");
  if (o.compress)
    throw usage_error("--shard-optimizer with --compress",
                      "ranks pass new weights on, which are not compressed; give one of them");
  if (o.allreduce == Allreduce::mpi)
    throw usage_error("--shard-optimizer with --allreduce mpi",
                      "MPI's sums are whole on all ranks; leave --allreduce out");
}

void Parser::check_compression() const {
  const Options& o = request_.options;
  if (!o.compress) return;
  if (o.allreduce == Allreduce::mpi)
    throw usage_error(
        "--compress with --allreduce mpi",
        "MPI sums what it is given; --allreduce ring compresses what travels between hosts");
  if (o.gradient_dtype != Element::fp32)
    throw usage_error("--compress with --gradient-dtype",
                      "what is left of compressed gradients travels in fp32; give one of them");
  if (o.plan_device)
    throw usage_error(
        "--compress with --plan-device",
        "the plan is of one GPU, gradients are compressed between hosts; give one of them");
}

void Parser::check_tuning() const {
  const Options& o = request_.options;
  if (o.tune.mode == Tune::Mode::all && (o.compress || o.gradient_dtype != Element::fp32))
    throw usage_error("--tuning all",
                      "chooses --gradient-dtype and --compress itself; leave them out");
  if (o.tune.mode == Tune::Mode::all && o.shard_optimizer)
    throw usage_error("--tuning all with --shard-optimizer",
                      "ranks pass new weights on, which stay in fp32; say --tuning auto");
  if (o.tune.mode != Tune::Mode::given && o.tune.mode != Tune::Mode::all) return;
  if (o.allreduce == Allreduce::mpi || o.allreduce == Allreduce::nccl)
    throw usage_error("--tuning with --allreduce",
                      "only the ring between CPUs is tuned; leave --allreduce out");
  const bool nccl_sums =
      o.tune.mode == Tune::Mode::given && o.device == Device::cuda && !o.compress;
  if (nccl_sums || o.plan_device)
    throw usage_error("--tuning",
                      "is for sums between CPUs, NCCL makes its own plans; leave it out");
  if (o.tune.plan.at_once > 1 && (o.compress || o.shard_optimizer))
    throw usage_error("--tuning sums=N",
                      "--compress and --shard-optimizer take one sum at a time; leave sums= out");
}

void Parser::check_checkpoint_options() const {
  const Options& o = request_.options;
  const bool saves = !o.checkpoint_dir.empty();
  for (const char* name : {"checkpoint-every", "keep", "keep-best", "final-save-timeout"})
    need(name, saves, "nothing is saved without --checkpoint-dir DIR; add it");
  need("resume", saves || o.resume.from != Resume::From::newest,
       "auto looks for checkpoints in --checkpoint-dir DIR; add it, or name a file");
  need("init-from", o.resume.from != Resume::From::file,
       "starts a training, --resume FILE goes on with one; give one of them");
  check_export();
  const bool loads = !o.init_from.empty() || o.resume.from == Resume::From::file ||
                     (saves && o.resume.from == Resume::From::newest);
  if (o.eval_only && !loads)
    throw usage_error(
        o.predicts() ? "--predict" : "--eval-only",
        fmt::format("nothing to {}: add --checkpoint-dir DIR, --resume FILE or --init-from FILE",
                    o.predicts() ? "predict with" : "evaluate"));
}

void Parser::check_export() const {
  need("export", !request_.options.init_from.empty(), "writes what --init-from FILE holds; add it");
  const bool onnx = typed("export") && request_.exported.format == ExportFormat::onnx;
  need("fold-batchnorm", onnx, "says how --export onnx FILE writes; add it");
  need("uint8-input", onnx, "says how --export onnx FILE writes; add it");
}

// The supervisor gives ranks --restarts 0.
void Parser::check_supervised() const {
  const int restarts = request_.options.restarts;
  if (restarts > 0)
    throw usage_error(
        fmt::format("--restarts {}", restarts),
        "a job cannot start itself again; put the supervisor before what starts the ranks: "
        "scripts/supervise mpirun -np N train --restarts R ... (train.sbatch does)");
}

// What the file of a built-in network says, as comments; another is not read here.
std::string network_lines(const Options& o) {
  if (std::ranges::count(model::model_names(), o.model) == 0) return "";
  std::string text(model::model_text(o.model));
  if (!o.recipe.empty()) text = model::with_words(text, o.recipe);
  std::string lines = fmt::format("\n# {}'s model file\n", o.model);
  for (const std::string& line : split(text, '\n'))
    for (const char* word : {"recipe ", "images ", "input "})
      if (line.starts_with(word)) lines += "# " + line + "\n";
  return lines;
}

// Before a line of the run is printed.
void Parser::expect_known_model() const {
  const std::string& name = request_.options.model;
  if (!name.empty()) static_cast<void>(model::model_text(name));
}

// Ranks that this process is to start by mpirun open what it read, as mpirun keeps it open.
void Parser::take_standard_input(const std::function<void(const std::string&)>& before_reading) {
  for (std::size_t i = 0; i < words_.size(); ++i) {
    const bool follows = i > 0 && words_[i - 1] == "--config" && words_[i] == "-";
    if (!follows && words_[i] != "--config=-") continue;
    if (before_reading) before_reading("-");
    if (typed("emit-sbatch"))
      throw usage_error("--config - with --emit-sbatch",
                        "a job has no standard input; name a file");
    if (standard_input_.empty()) standard_input_ = keep_standard_input();
    words_[i] = (follows ? "" : "--config=") + standard_input_;
  }
}

Command Parser::parse(int argc, const char* const* argv,
                      const std::function<void(const std::string&)>& before_reading) try {
  using enum Command::Action;
  words_ = in_own_words({argv + std::min(argc, 1), argv + argc}, table_);
  if (typed("help") || std::ranges::count(words_, "-h") > 0)
    return {.action = show_text, .text = help_text(table_)};
  if (typed("version"))
    return {.action = show_text, .text = typed("json") ? version_json() : version_text()};

  check_flags();
  take_standard_input(before_reading);
  app_.parse(std::vector<std::string>(words_.rbegin(), words_.rend()));
  check_extras();
  check_tildes();
  need("json", false, "is how --version prints; add it");
  if (request_.man_page) return {.action = show_text, .text = man_page(table_, RINGTRAIN_VERSION)};
  if (request_.completion)
    return {.action = show_text, .text = completion(table_, *request_.completion)};
  if (!request_.inspect.empty()) return {.action = inspect, .inspect = request_.inspect};
  need("pack-short-side", typed("pack"), "says how --pack DIR OUT copies images; add it");
  if (typed("pack"))
    return {.action = pack,
            .options = request_.options,
            .pack_source = request_.pack_source,
            .pack_target = request_.pack_target,
            .pack_short_side = request_.pack_short_side};
  if (request_.options.model == "list") return {.action = list_models};
  expect_known_model();
  check_contradictions();
  if (request_.print_model) return {.action = print_model, .options = request_.options};
  if (request_.print_config == PrintConfig::given)
    return {.action = show_text, .text = config_text(request_.options)};
  if (request_.print_config) return {.action = print_config, .options = request_.options};
  if (request_.batch_job && given("ranks") && !typed("ranks"))
    throw usage_error("--emit-sbatch with ranks of the --config file",
                      "the job starts its ranks itself; take them out of the file");
  if (const auto& job = request_.batch_job)
    return {.action = show_text,
            .text = sbatch_script(*job, request_.options, words_, program_to_start())};
  if (request_.options.plan) return {.action = plan, .options = request_.options};
  if (typed("export"))
    return {.action = write_export, .options = request_.options, .exported = request_.exported};
  check_supervised();
  Command command{.options = request_.options};
  if (!request_.options.ranks) return command;
  command.rank_command = words_;
  command.rank_command.insert(command.rank_command.begin(), program_to_start());
  return command;
} catch (const CLI::ParseError& failure) {
  throw usage_error("command line", failure.what());
}

}  // namespace

std::string config_text(const Options& options) {
  Request request{.options = options};
  return toml_text(option_table(request)) + network_lines(options);
}

Command parse(int argc, const char* const* argv,
              const std::function<void(const std::string&)>& before_reading) {
  return Parser(before_reading).parse(argc, argv, before_reading);
}

}  // namespace ringtrain::config
