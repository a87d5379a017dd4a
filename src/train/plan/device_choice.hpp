#pragma once
#include <string>

#include "ringtrain/allreduce/mpi/session.hpp"
#include "ringtrain/compute/gpu.hpp"
#include "ringtrain/config/options.hpp"

namespace ringtrain::train {

/// What one rank makes of its machine's GPUs.
struct GpuJudgement {
  enum class Answer {
    usable,
    none,     ///< there is none, or the user hides it: training goes on on CPUs
    unusable  ///< there is one, and this build cannot use it: the user decides
  };
  Answer answer = Answer::none;
  std::string text;  ///< unless usable: what is there and what is wanted; how to mend it
};
GpuJudgement judge_gpus(const compute::InstalledGpus& installed, const compute::GpusHere& here,
                        config::Precision precision = config::Precision::automatic);

/// Whether to train on GPUs, with a line for the user: why --device auto takes CPUs, or which GPUs
/// stay idle. The line may be empty.
struct DeviceChoice {
  bool gpu = false;
  std::string note = {};
};
/// What a user is told who started one rank where it sees several GPUs; else empty.
std::string idle_gpus_note(int gpus, int ranks);
/// Ends the job (Exit::usage) where a GPU is there that cannot be used, or not in this precision,
/// where only some ranks have one, and where --device cuda finds none. Collective: all ranks come
/// to the same choice.
DeviceChoice choose_device(config::Device device, config::Precision precision,
                           const allreduce::MpiSession& session);

}  // namespace ringtrain::train
