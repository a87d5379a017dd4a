#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "ringtrain/io/checkpoint_writer.hpp"
#include "ringtrain/train/output.hpp"
#include "train/evaluator.hpp"
#include "train/plan.hpp"
#include "train/trainer.hpp"

namespace ringtrain {

/// Keeps this rank's account of a run and tells the user through `output`, which is silent on all
/// ranks but the first.
class RunLog {
 public:
  RunLog(Output& output, const Plan& plan, Position start, int rank);

  /// A step is over, `wall_seconds` after the one before: what it does not account for is `other`.
  void step(const StepReport& report, double wall_seconds, double checkpoint_seconds);
  void evaluation(std::uint64_t step, const Evaluation& result);
  /// `stall_seconds`: what its copy cost the step loop.
  void save(const SaveEvent& event, double stall_seconds);
  void event(const std::string& what, const std::string& text) {
    output_.event({what, rank_, text});
  }
  /// The closing table of a run that ends at `end`. Collective: it shows all ranks' phases.
  void finish(const Position& end, const MpiSession& session);

 private:
  void tell(const StepReport& report);
  double epoch(const Position& position) const;

  Output& output_;
  const Plan& plan_;
  Position start_;
  std::uint64_t last_step_;
  int rank_;
  StepTimes times_;
  double seconds_ = 0, rate_ = 0;
  std::optional<EvalRecord> accuracy_;
  std::string checkpoint_file_;
  std::optional<std::pair<std::uint64_t, Stopwatch>> checkpoint_;  // step, and since when
};

}  // namespace ringtrain
