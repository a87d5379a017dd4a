#pragma once
#include <exception>
#include <string>

#include "ringtrain/base/error.hpp"
#include "ringtrain/monitor/progress.hpp"

namespace ringtrain::monitor {

/// A phase of a step, while it lives. It is reported to the watchdog where it begins, which goes on
/// to name it until another is entered. Where it ends, the timeline records it and its seconds are
/// added to the step's. Thread: main.
class PhaseScope {
 public:
  /// What is passed outlives it. `phase` is one of the ledger's. `step`: seconds of the step under
  /// way.
  PhaseScope(Progress& progress, metrics::Phase phase, metrics::PhaseSeconds& step)
      : PhaseScope(progress, phase, step, phase) {}
  /// The watchdog is to name another phase than the ledger and the timeline.
  PhaseScope(Progress& progress, metrics::Phase phase, metrics::PhaseSeconds& step,
             metrics::Phase watched)
      : progress_(progress), phase_(phase), step_(step) {
    expects(metrics::ledger_place(phase) < metrics::ledger_phases.size(),
            "PhaseScope: a phase of the ledger");
    progress_.enter(watched);
  }
  PhaseScope(const PhaseScope&) = delete;
  PhaseScope& operator=(const PhaseScope&) = delete;
  ~PhaseScope() {
    if (!ended_) end();
  }

  /// Ends it before its block does. Returns how long it took.
  double end() {
    ended_ = true;
    const auto begin = watch_.started();
    const double seconds = watch_.lap();
    step_[phase_] += seconds;
    progress_.record(phase_, {begin, watch_.started(), progress_.now().step});
    return seconds;
  }

 private:
  Progress& progress_;
  const metrics::Phase phase_;
  metrics::PhaseSeconds& step_;
  Stopwatch watch_;
  bool ended_ = false;
};

/// Something else amid a phase, for the watchdog alone: where it ends, what it interrupted is named
/// again. After an exception it goes on to be named, as what the job failed in. Thread: main.
class PhaseInterruption {
 public:
  /// `progress` outlives it.
  PhaseInterruption(Progress& progress, metrics::Phase phase)
      : progress_(progress), before_(progress.now().phase), item_(progress.item()) {
    progress_.enter(phase);
  }
  PhaseInterruption(const PhaseInterruption&) = delete;
  PhaseInterruption& operator=(const PhaseInterruption&) = delete;
  ~PhaseInterruption() {
    if (std::uncaught_exceptions() > exceptions_) return;
    if (item_.empty())
      progress_.enter(before_);
    else
      progress_.enter(before_, item_);
  }

 private:
  Progress& progress_;
  const metrics::Phase before_;
  const std::string item_;
  const int exceptions_ = std::uncaught_exceptions();
};

}  // namespace ringtrain::monitor
