#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <utility>

#include "config/slurm_resources.hpp"
#include "ringtrain/base/error.hpp"
#include "ringtrain/base/program.hpp"
#include "ringtrain/base/text.hpp"

namespace ringtrain::config {
namespace {

constexpr double spare_s = 60;  // beside the last save: a step, and leaving MPI

double signal_before_limit(const SlurmResources& job, const Options& options) {
  return std::ceil(job.signal_s.value_or(options.final_save_timeout_s + spare_s));
}

Error contradiction(std::string_view what, std::string_view reason) {
  return Error(Exit::usage, what, reason);
}

void check(const SlurmResources& job, const Options& o) {
  const double signal_s = signal_before_limit(job, o);
  if (job.time_s && *job.time_s <= signal_s)
    throw contradiction(fmt::format("--emit-sbatch time={}", duration_text(*job.time_s)),
                        fmt::format("the job is told to save and end {} before that, so that "
                                    "nothing is left; give it more, or a shorter signal=T",
                                    duration_text(signal_s)));
  if (job.requeue.value_or(false) && o.checkpoint_dir.empty())
    throw contradiction("--emit-sbatch requeue=yes",
                        "each run would begin anew without --checkpoint-dir DIR; add it");
  if (o.device == Device::cuda && job.gpus == 0)
    throw contradiction("--device cuda", "no GPU is asked for; add gpus=N to --emit-sbatch");
  if (o.device == Device::cpu && job.gpus > 0)
    throw contradiction(fmt::format("--emit-sbatch gpus={} with --device cpu", job.gpus),
                        "they would lie idle; leave out one of them");
  if (o.without_lost_hosts && job.launcher == StartedBy::srun)
    throw contradiction("--without-lost-hosts with --emit-sbatch launcher=srun",
                        "hosts can be left out with mpirun only; leave out one of them");
}

bool goes_on(const SlurmResources& job, const Options& options) {
  return job.requeue.value_or(!options.checkpoint_dir.empty());
}

std::string slurm_time(double seconds) {
  const auto minutes = static_cast<long>(std::ceil(seconds / 60));
  return fmt::format("{}-{:02}:{:02}:00", minutes / 1440, minutes / 60 % 24, minutes % 60);
}

std::string directives(const SlurmResources& job, const Options& o) {
  std::string text;
  const auto add = [&](const std::string& option) { text += "#SBATCH --" + option + "\n"; };
  add("job-name=" + job.name);
  add("output=" + job.name + "-%j.log");
  add("open-mode=append");
  if (!job.partition.empty()) add("partition=" + job.partition);
  if (!job.account.empty()) add("account=" + job.account);
  if (job.time_s) add("time=" + slurm_time(*job.time_s));
  add(fmt::format("nodes={}", job.nodes));
  add(fmt::format("ntasks-per-node={}", job.tasks.value_or(std::max(1, job.gpus))));
  add(job.cpus ? fmt::format("cpus-per-task={}", *job.cpus) : "exclusive");
  if (!job.cpus) add("mem=0");
  if (job.gpus > 0) add(fmt::format("gpus-per-node={}", job.gpus));
  add(fmt::format("signal=B:USR2@{}", signal_before_limit(job, o)));
  add(goes_on(job, o) ? "requeue" : "no-requeue");
  if (o.restarts > 0) add("no-kill");  // the allocation outlives a node, for the supervisor
  return text;
}

bool is_plain(std::string_view word) {
  constexpr std::string_view plain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-";
  return !word.empty() && word.find_first_not_of(plain) == word.npos;
}

// For a shell; between single quotes only they themselves mean something.
std::string shell_word(std::string_view word) {
  if (is_plain(word)) return std::string(word);
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? "'\\''" : std::string(1, c);
  return text + "'";
}

std::string setting(std::string_view name, const std::string& value) {
  return fmt::format("{0}=${{{0}:-{1}}}\n", name, value);
}

// An option's value, where it is a word of its own, never begins like an option.
std::vector<std::string> without_launch(const std::vector<std::string>& words) {
  std::vector<std::string> kept;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--emit-sbatch" || words[i] == "--ranks") {
      if (i + 1 < words.size() && !words[i + 1].starts_with('-')) ++i;
    } else if (!words[i].starts_with("--emit-sbatch=") && !words[i].starts_with("--ranks=")) {
      kept.push_back(words[i]);
    }
  }
  return kept;
}

std::string settings(const SlurmResources& job, const Options& options,
                     const std::vector<std::string>& words, const std::string& program) {
  std::string text =
      "\n# What this run is; options given to sbatch behind the script's name win.\n";
  text += setting("RINGTRAIN_TRAIN", shell_word(program));
  text += setting("RINGTRAIN_LAUNCHER", job.launcher == StartedBy::srun ? "srun" : "mpirun");
  text += setting("RINGTRAIN_SPOT", job.spot ? "yes" : "no");
  text += setting("RINGTRAIN_REQUEUE", goes_on(job, options) ? "yes" : "no");
  text += "set --";
  for (const std::string& word : without_launch(words)) text += " " + shell_word(word);
  return text + " \"$@\"\n";
}

}  // namespace

std::string sbatch_script(const SlurmResources& job, const Options& options,
                          const std::vector<std::string>& words, const std::string& program) {
  check(job, options);
  std::string script;
  bool directed = false;
  std::istringstream lines{std::string(sbatch_file)};
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("#SBATCH ")) {
      script += line + "\n";
      if (line == "set -euo pipefail") script += settings(job, options, words, program);
    } else if (!std::exchange(directed, true)) {
      script += directives(job, options);
    }
  }
  return script;
}

std::string program_to_start() {
  // A Python package's command, which has set this to itself: beside it is its mpirun.
  if (const char* entry = std::getenv("RINGTRAIN_ENTRY"); entry != nullptr && *entry != '\0')
    return entry;
  const auto program = std::filesystem::canonical(own_program());
  const auto folder = program.parent_path();
  const auto entry = folder.parent_path().parent_path() / program.filename();
  const bool in_bundle = folder.filename() == "programs" && std::filesystem::exists(entry);
  return (in_bundle ? entry : program).string();
}

}  // namespace ringtrain::config
