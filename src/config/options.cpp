#include "ringtrain/config/options.hpp"

#include <fmt/core.h>
#include <sys/stat.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <map>
#include <system_error>

#include "config/option_table.hpp"
#include "config/version.hpp"
#include "ringtrain/base/error.hpp"
#include "ringtrain/base/text.hpp"
#include "ringtrain/base/units.hpp"

namespace ringtrain::config {
namespace {

constexpr std::int64_t config_bytes = 1 << 20;

Error usage(std::string_view what, std::string_view reason) {
  return Error(Exit::usage, brief(what), brief(reason));
}

std::string hint(std::string_view name, const std::vector<std::string>& names) {
  return fmt::format("the nearest name is {}; train --help lists all", nearest(name, names));
}

const OptionEntry* find(const std::vector<OptionEntry>& table, const std::string& name) {
  const auto found = std::ranges::find(table, name, &OptionEntry::name);
  return found == table.end() ? nullptr : &*found;
}

std::vector<std::string> names(const std::vector<OptionEntry>& table, std::string_view prefix,
                               bool only_in_files) {
  std::vector<std::string> all;
  for (const OptionEntry& entry : table)
    if (entry.in_files || !only_in_files) all.push_back(std::string(prefix) + entry.name);
  return all;
}

// A quoted value may have a '#'.
std::string without_comment(const std::string& line) {
  char quote = 0;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (c == '#' && quote == 0) return line.substr(0, i);
    if (c == quote)
      quote = 0;
    else if (quote == 0 && (c == '"' || c == '\''))
      quote = c;
  }
  return line;
}

/// One key with one value on each line. CLI11's own reader of TOML makes lists of values with
/// commas or spaces, of which an option takes the last.
class CheckedToml final : public CLI::ConfigTOML {
 public:
  /// `file` names it in messages, once it is known.
  CheckedToml(const std::vector<OptionEntry>& table, const std::string& file)
      : table_(table), file_(file) {}

  std::vector<CLI::ConfigItem> from_config(std::istream& text) const override {
    std::vector<CLI::ConfigItem> items;
    std::map<std::string, int> lines;  // of the keys so far
    int number = 0;
    for (std::string line; std::getline(text, line);) {
      line = CLI::detail::trim_copy(without_comment(line));
      if (++number; line.empty() || line.front() == ';') continue;
      items.push_back(item(line, number));
      const auto [first, is_new] = lines.emplace(items.back().name, number);
      if (!is_new)
        fail(number, items.back().name,
             fmt::format("line {} has it, too; keep one of them", first->second));
    }
    if (text.bad())
      throw usage(fmt::format("configuration file {}, after line {}", file_, number),
                  "cannot be read to its end; look at the disk or the mount (dmesg, df)");
    return items;
  }

 private:
  [[noreturn]] void fail(int line, const std::string& key, std::string_view why) const {
    throw usage(fmt::format("configuration file {}, line {}, key '{}'", file_, line, key), why);
  }

  CLI::ConfigItem item(const std::string& line, int number) const {
    if (line.front() == '[')
      throw usage(fmt::format("configuration file {}, line {}, section {}", file_, number, line),
                  "there are no sections; write all keys without any");
    const std::size_t equals = line.find('=');
    CLI::ConfigItem item;
    item.name = CLI::detail::trim_copy(line.substr(0, equals));
    CLI::detail::remove_quotes(item.name);
    const OptionEntry& entry = entry_of(item.name, number);
    if (equals != line.npos)
      item.inputs = {value(CLI::detail::trim_copy(line.substr(equals + 1)), item.name, number)};
    else if (entry.is_flag())
      item.inputs = {"true"};
    else
      fail(number, item.name, "has no value; write key = value");
    if (entry.is_flag() && item.inputs[0] != "true" && item.inputs[0] != "false")
      fail(number, item.name, "must be true or false");
    return item;
  }

  const OptionEntry& entry_of(const std::string& key, int line) const {
    const OptionEntry* entry = find(table_, key);
    if (entry == nullptr || !entry->in_files)
      fail(line, key, "unknown; " + hint(key, names(table_, "", true)));
    return *entry;
  }

  std::string value(const std::string& text, const std::string& key, int line) const {
    if (text.empty()) fail(line, key, "has no value; write key = value");
    const char quote = text.front();
    if (quote != '"' && quote != '\'') {
      if (text.find_first_of(" \t,[]\"'") == text.npos) return text;
      fail(line, key,
           fmt::format("{} is no single value; a number has a point, and text with commas, spaces "
                       "or brackets stands in quotes",
                       text));
    }
    const std::size_t end = text.find(quote, 1);
    if (end == text.npos) fail(line, key, fmt::format("{} has no closing quote", text));
    if (end + 1 < text.size())
      fail(line, key, fmt::format("{} goes on behind the closing quote", text));
    return text.substr(1, end - 1);
  }

  const std::vector<OptionEntry>& table_;
  const std::string& file_;
};

std::string check_config_file(const std::string& path) {
  struct stat file {};
  if (::stat(path.c_str(), &file) != 0) return path + ": " + std::generic_category().message(errno);
  if (!S_ISREG(file.st_mode)) return path + ": is not a regular file";
  if (file.st_size > config_bytes)
    return fmt::format("{}: {} bytes are no configuration: it has at most 1 MiB", path,
                       file.st_size);
  return "";
}

class Parser {
 public:
  Parser();
  Command parse(int argc, const char* const* argv);

 private:
  void add(const OptionEntry& entry);
  void check_flags() const;
  void check_extras() const;
  /// On the command line or in the file.
  bool given(const std::string& name) const { return app_.count("--" + name) > 0; }
  /// On the command line. A file may hold every option, as --print-config writes it.
  bool typed(const std::string& name) const;
  void exclude(const std::string& one, const std::string& other, std::string_view why) const;
  void need(const std::string& name, bool kept, std::string_view why) const;
  void check_contradictions() const;
  void check_compression() const;
  void check_tuning() const;
  void check_sharding() const;
  void check_checkpoint_options() const;
  void check_supervised() const;

  std::vector<std::string> words_;
  Request request_;
  std::vector<OptionEntry> table_ = option_table(request_);
  std::string config_file_;
  CLI::App app_;
};

Parser::Parser() {
  app_.set_help_flag();  // ours is printed before anything else is looked at
  app_.allow_extras();
  for (const OptionEntry& entry : table_)
    if (entry.name != "config" && entry.name != "pack") add(entry);
  const auto set_pack = [this](const std::vector<std::string>& directories) {
    request_.pack_source = directories[0];
    request_.pack_target = directories[1];
  };
  app_.add_option_function<std::vector<std::string>>("--pack", set_pack)
      ->expected(2)
      ->type_name("DIR OUT");
  app_.set_config("--config")->take_last()->check([this](const std::string& path) {
    config_file_ = path;
    return check_config_file(path);
  });
  app_.config_formatter(std::make_shared<CheckedToml>(table_, config_file_));
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
      throw usage(fmt::format("{} {}", option, text), bad.what());
    }
  };
  // Open MPI 4's mpirun takes a --tune behind the program for its own, so it is no name to teach.
  const std::string names = entry.name == "tuning" ? option + ",--tune" : option;
  CLI::Option* added = app_.add_option_function<std::string>(names, set);
  added->take_last()->type_name(entry.argument);
  if (!entry.alone.empty()) added->expected(0, 1)->default_str(entry.alone);
}

void Parser::check_flags() const {
  for (const std::string& word : words_) {
    const std::size_t equals = word.find('=');
    if (!word.starts_with("--") || equals == word.npos) continue;
    const OptionEntry* entry = find(table_, word.substr(2, equals - 2));
    if (entry != nullptr && entry->is_flag())
      throw usage(word, fmt::format("--{} takes no value; give it or leave it out", entry->name));
  }
}

void Parser::check_extras() const {
  const std::vector<std::string> extras = app_.remaining();
  const auto option =
      std::ranges::find_if(extras, [](const auto& text) { return text.starts_with('-'); });
  if (option != extras.end()) {
    const std::string name = option->substr(0, option->find('='));
    throw usage("unknown option " + name, hint(name, names(table_, "--", false)));
  }
  if (!extras.empty())
    throw usage(fmt::format("unexpected argument '{}'", extras.front()),
                "every value follows the name of its option; train --help lists all");
}

bool Parser::typed(const std::string& name) const {
  const std::string option = "--" + name;
  return std::ranges::any_of(words_, [&](const std::string& word) {
    return word == option || word.starts_with(option + "=");
  });
}

void Parser::exclude(const std::string& one, const std::string& other, std::string_view why) const {
  if (!given(one) || !given(other)) return;
  throw usage(fmt::format("--{} with --{}", one, other),
              std::string(why) + (given("config") ? " (see also the --config file)" : ""));
}

void Parser::need(const std::string& name, bool kept, std::string_view why) const {
  if (typed(name) && !kept) throw usage("--" + name, why);
}

void Parser::check_contradictions() const {
  const Options& o = request_.options;
  exclude("model", "model-file", "both name the network; give one of them");
  exclude("epochs", "steps", "both are the length of training; give one of them");
  exclude("batch", "global-batch", "one follows from the other and the ranks; give one of them");
  need("require-efficiency", !o.eval_only && !o.verify_resume,
       "judges training, but this run does not train; leave it out");
  need("progress", !o.quiet || o.progress != ShowProgress::on,
       "on contradicts --quiet; give one of them");
  if (o.eval_only && o.baseline)
    throw usage("--eval-only with --baseline", "the baseline measures training; give one of them");
  if (o.verify_resume && (o.eval_only || o.baseline))
    throw usage(
        o.eval_only ? "--verify-resume with --eval-only" : "--verify-resume with --baseline",
        "each is all that a run does; give one of them");
  need("without-lost-hosts", given("restarts"), "says how --restarts N starts again; add it");
  need("timeline-spans", !o.timeline.empty(), "says how much --timeline FILE keeps; add it");
  if (o.verify_resume && !o.timeline.empty())
    throw usage("--verify-resume with --timeline",
                "it proves bits and times nothing; give one of them");
  need("plan-device", o.plan, "says what --plan is for; add it");
  const bool on_cpus = o.device == Device::cpu || (o.plan && !o.plan_device);
  if (o.precision == Precision::fp16 && on_cpus)
    throw usage("--precision fp16",
                "CPUs train in auto, fp32, bf16; fp16 is for GPUs, here or --plan-device GPU");
  if (o.gradient_dtype != Element::fp32 && o.allreduce == Allreduce::mpi)
    throw usage("--gradient-dtype with --allreduce mpi",
                "MPI sums in fp32; --allreduce ring rounds what travels between hosts");
  check_compression();
  check_sharding();
  check_tuning();
  check_checkpoint_options();
}

// Ranks pass new weights on, in the place of sums.
void Parser::check_sharding() const {
  const Options& o = request_.options;
  if (!o.shard_optimizer) return;
  if (o.device == Device::cuda || o.plan_device)
    throw usage("--shard-optimizer", "is for CPUs; leave it out, or --device and --plan-device");
  if (o.gradient_dtype != Element::fp32)
    throw usage("--shard-optimizer with --gradient-dtype",
                "ranks pass new weights on, which stay in fp32; give one of them");
  if (o.compress)
    throw usage("--shard-optimizer with --compress",
                "ranks pass new weights on, which are not compressed; give one of them");
  if (o.allreduce == Allreduce::mpi || o.allreduce == Allreduce::nccl)
    throw usage("--shard-optimizer with --allreduce",
                "only the ring between CPUs sums in parts; leave --allreduce out or say ring");
}

void Parser::check_compression() const {
  const Options& o = request_.options;
  if (!o.compress) return;
  if (o.allreduce == Allreduce::mpi)
    throw usage(
        "--compress with --allreduce mpi",
        "MPI sums what it is given; --allreduce ring compresses what travels between hosts");
  if (o.gradient_dtype != Element::fp32)
    throw usage("--compress with --gradient-dtype",
                "what is left of compressed gradients travels in fp32; give one of them");
  if (o.plan_device)
    throw usage("--compress with --plan-device",
                "gradients are compressed between hosts of CPUs only; give one of them");
}

void Parser::check_tuning() const {
  const Options& o = request_.options;
  if (o.tune.mode == Tune::Mode::all && (o.compress || o.gradient_dtype != Element::fp32))
    throw usage("--tuning all", "chooses --gradient-dtype and --compress itself; leave them out");
  if (o.tune.mode == Tune::Mode::all && o.shard_optimizer)
    throw usage("--tuning all with --shard-optimizer",
                "ranks pass new weights on, which stay in fp32; say --tuning auto");
  if (o.tune.mode != Tune::Mode::given && o.tune.mode != Tune::Mode::all) return;
  if (o.allreduce == Allreduce::mpi || o.allreduce == Allreduce::nccl)
    throw usage("--tuning with --allreduce",
                "only the ring between CPUs is tuned; leave --allreduce out or say ring");
  if (o.device == Device::cuda || o.plan_device)
    throw usage("--tuning", "is for sums between CPUs, NCCL makes its own plans; leave it out");
  if (o.tune.plan.at_once > 1 && (o.compress || o.shard_optimizer))
    throw usage("--tuning sums=N",
                "--compress and --shard-optimizer take one sum at a time; leave sums= out");
}

void Parser::check_checkpoint_options() const {
  const Options& o = request_.options;
  const bool saves = !o.checkpoint_dir.empty();
  for (const char* name : {"checkpoint-every", "keep", "final-save-timeout"})
    need(name, saves, "nothing is saved without --checkpoint-dir DIR; add it");
  need("resume", saves || o.resume.from != Resume::From::newest,
       "auto looks for checkpoints in --checkpoint-dir DIR; add it, or name a file");
  need("init-from", o.resume.from != Resume::From::file,
       "starts a training, --resume FILE goes on with one; give one of them");
  const bool loads = !o.init_from.empty() || o.resume.from == Resume::From::file ||
                     (saves && o.resume.from == Resume::From::newest);
  if (o.eval_only && !loads)
    throw usage("--eval-only",
                "nothing to evaluate: add --checkpoint-dir DIR, --resume FILE or --init-from FILE");
}

// The supervisor gives ranks --restarts 0.
void Parser::check_supervised() const {
  const int restarts = request_.options.restarts;
  if (restarts > 0)
    throw usage(fmt::format("--restarts {}", restarts),
                "a job cannot start itself again; put the supervisor before what starts the ranks: "
                "scripts/supervise mpirun -np N train --restarts R ... (train.sbatch does)");
}

Command Parser::parse(int argc, const char* const* argv) try {
  using enum Command::Action;
  words_.assign(argv + std::min(argc, 1), argv + argc);
  if (typed("help") || std::ranges::count(words_, "-h") > 0)
    return {.action = show_text, .text = help_text(table_)};
  if (typed("version"))
    return {.action = show_text, .text = typed("json") ? version_json() : version_text()};

  check_flags();
  app_.parse(argc, argv);
  check_extras();
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
  check_contradictions();
  if (given("model-file")) request_.options.model.clear();
  if (request_.print_config) return {.action = show_text, .text = toml_text(table_)};
  if (const auto& job = request_.batch_job)
    return {.action = show_text,
            .text = sbatch_script(*job, request_.options, words_, program_to_start())};
  if (request_.options.plan) return {.action = plan, .options = request_.options};
  check_supervised();
  return {.options = request_.options};
} catch (const CLI::ParseError& failure) {
  throw usage("command line", failure.what());
}

}  // namespace

Command parse(int argc, const char* const* argv) { return Parser().parse(argc, argv); }

}  // namespace ringtrain::config
