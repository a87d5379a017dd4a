#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ringtrain/io/checkpoint_writer.hpp"
#include "train/evaluator.hpp"
#include "train/plan.hpp"
#include "train/trainer.hpp"

namespace ringtrain {

/// One step, as told to the user.
struct StepReport {
  Position position;
  double epoch = 0, loss = 0, top1 = 0, learning_rate = 0;
  double seconds = 0;  ///< wall time since the step before ended
  StepSeconds phases;
  double checkpoint_s = 0;  ///< of `seconds`, that a checkpoint took
};

/// Tells the user what happens. This one says nothing: for the ranks but the first, so that the
/// step loop needs no rank test.
class Reporter {
 public:
  virtual ~Reporter() = default;
  /// A line of its own.
  virtual void note(const std::string&) {}
  /// Something that went wrong or is unusual, also recorded in the metrics.
  virtual void event(const std::string& what, const std::string& text);
  virtual void start(const Plan&, const std::string& /*config*/) {}
  virtual void step(const StepReport&) {}
  virtual void save(const SaveEvent&) {}
  virtual void evaluation(std::uint64_t /*step*/, const Evaluation&) {}
  /// The closing table. `phases` has a line of totals from each rank.
  virtual void finish(const std::vector<std::string>& phases) { static_cast<void>(phases); }
};

/// For rank 0: log lines, progress bar, metrics and the closing table as the options say.
std::unique_ptr<Reporter> make_console_reporter(const Options& options, const MpiSession& session);

}  // namespace ringtrain
