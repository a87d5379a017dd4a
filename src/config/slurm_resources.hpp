#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ringtrain/config/options.hpp"

namespace ringtrain::config {

enum class StartedBy { mpirun, srun };

/// What a run asks of Slurm: the value of `--emit-sbatch`. Each default is that of
/// scripts/slurm/train.sbatch.
struct SlurmResources {
  int nodes = 1;
  std::optional<int> tasks;  ///< ranks a node; unset: one a GPU, without GPUs one
  std::optional<int> cpus;   ///< a rank; unset: whole nodes
  int gpus = 0;              ///< a node
  std::optional<double> time_s;
  std::optional<double> signal_s;  ///< before the time limit; unset: room for the last save
  std::string name = "ringtrain";
  std::string partition, account;  ///< empty: the cluster's default
  StartedBy launcher = StartedBy::mpirun;
  std::optional<bool> requeue;  ///< unset: yes, should there be checkpoints
  bool spot = false;
};

/// Reads "nodes=4,tasks=2,time=2h". Throws BadValue naming the key, and what it must be.
SlurmResources batch_job(const std::string& text);
/// A text that batch_job() reads back: what differs from the defaults.
std::string to_string(const SlurmResources& job);

/// scripts/slurm/train.sbatch with the directives of `job`, which starts `program` with `words`:
/// the command line that came to `options`, --emit-sbatch left out. Throws Error(Exit::usage) where
/// `job` and `options` contradict one another.
std::string sbatch_script(const SlurmResources& job, const Options& options,
                          const std::vector<std::string>& words, const std::string& program);

/// The full path that starts this program on another host, too: of a bundle, its entry script
/// (docs/guide/bundle.md), of a Python package the command, which RINGTRAIN_ENTRY names.
std::string program_to_start();

/// scripts/slurm/train.sbatch, as it was when this program was built.
extern const std::string_view sbatch_file;

}  // namespace ringtrain::config
