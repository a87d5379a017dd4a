#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "ringtrain/allreduce/mpi/session.hpp"
#include "ringtrain/config/options.hpp"
#include "train/engine/stepper.hpp"

namespace ringtrain::train {

/// One of the trainings that --verify-resume compares, made as if by a process of its own.
struct TrainingPart {
  std::uint64_t steps = 0;          ///< to make, unless training ends before
  config::Resume resume;            ///< where it starts from
  std::filesystem::path directory;  ///< of checkpoints, to start from and to save to
  bool saves = false;               ///< the last state, on rank 0
};

/// What a part came to.
struct PartResult {
  Position start, end;
  std::filesystem::path resumed_from{};  ///< on rank 0; empty: from scratch
  std::vector<std::string> tensors{};    ///< names, of the whole state
  std::vector<std::uint64_t> hashes{};   ///< of each, on this rank
  std::uint64_t state_hash = 0;          ///< as --inspect shows it of a checkpoint
  int exit_code = 0;                     ///< not 0: a signal ended it
};

/// Makes a part. Collective.
using TrainPart = std::function<PartResult(const TrainingPart&)>;

/// Trains `*options.verify_resume` steps straight, and once more with an end, a checkpoint and a
/// resume in the middle; tells through `say` whether both came to the same bits. The checkpoint is
/// in a folder of its own, which is removed, below --checkpoint-dir or else the system's temporary
/// one. Returns the exit code; ends the job with Exit::internal, naming rank and tensors, where
/// bits differ. Collective.
int verify_resume(const config::Options& options, const allreduce::MpiSession& session,
                  const std::function<void(const std::string&)>& say, const TrainPart& train);

}  // namespace ringtrain::train
