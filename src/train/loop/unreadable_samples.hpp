#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ringtrain/allreduce/mpi/session.hpp"
#include "ringtrain/io/loader/loader.hpp"
#include "train/checkpoint/checkpoint_manager.hpp"
#include "train/loop/hook.hpp"
#include "train/loop/step_logger.hpp"
#include "train/loop/stop_control.hpp"
#include "train/plan/run_context.hpp"

namespace ringtrain::train {

/// The failure of a job that cannot read `unreadable` of `data`'s samples. `example`: a line about
/// one of them, where this rank has any; rank 0 shows one of any rank. Collective.
Error unreadable_data(const io::Dataset& data, std::uint64_t unreadable, std::string_view example,
                      const allreduce::MpiSession& session);

/// Keeps which samples of the training data cannot be read: the same on all ranks, and from run to
/// run, as checkpoints have them. A rank that meets new ones asks with the step's sums that all
/// exchange theirs. Training ends with a save where they are too many.
class UnreadableSamples final : public Hook {
 public:
  struct Parts {
    RunContext run;
    StepLogger& log;
    io::Loader& loader;
    CheckpointManager& checkpoints;
    StopControl& control;
  };
  /// All of it outlives the hook.
  explicit UnreadableSamples(const Parts& parts) : parts_(parts) {}

  /// Reads samples again that were unreadable in the run before, the same on all ranks: what was
  /// repaired since counts no more. Collective.
  void recall(std::span<const std::uint64_t> samples);

  void before_step(const Position&, host::StepRequest& request) override {
    request.unreadable = parts_.loader.has_new_unreadable();
  }
  void step_done(const StepReport& report) override {
    asked_ = asked_ || report.outcome.unreadable;
  }
  void between_steps(Trainer& trainer) override;

 private:
  bool can_be_read(std::uint64_t sample);
  void exchange(const std::vector<std::uint64_t>& mine);

  const io::Dataset& data() const { return *parts_.run.plan.training; }

  const Parts parts_;
  bool asked_ = false;  // by some rank
  std::uint64_t told_ = 0;
  std::string example_;
};

}  // namespace ringtrain::train
