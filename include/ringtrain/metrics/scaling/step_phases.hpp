#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "ringtrain/base/clock.hpp"
#include "ringtrain/base/statistics.hpp"
#include "ringtrain/metrics/scaling/phase.hpp"

namespace ringtrain::metrics {

/// Seconds by phase of the ledger. Throws std::out_of_range for any other phase.
struct PhaseSeconds {
  std::array<double, ledger_phases.size()> seconds{};

  double& operator[](Phase phase) { return seconds.at(ledger_place(phase)); }
  double operator[](Phase phase) const { return seconds.at(ledger_place(phase)); }
  double total() const;
};

/// Where this rank's time went, step by step.
class StepTimes {
 public:
  /// Adds a step of `wall_seconds` that trained `examples` over all ranks. What no phase accounts
  /// for is `other`, so that phases add up to the wall time. `sums_seconds`: from the start of its
  /// first sum over the ranks to the end of the last, within several phases. Returns the step.
  PhaseSeconds add_step(PhaseSeconds step, double wall_seconds, double examples,
                        double sums_seconds = 0);

  struct Mean {
    PhaseSeconds phases;
    double seconds = 0;              ///< a step
    double examples_per_second = 0;  ///< examples over wall time
    double sums_seconds = 0;         ///< a step
  };
  /// The mean step since the last call, or of nothing: zeros.
  Mean take_mean();

  std::int64_t steps() const { return static_cast<std::int64_t>(rates_.size()); }
  /// Sums over all steps.
  const PhaseSeconds& total() const { return total_; }
  double total_sums_seconds() const { return total_sums_s_; }
  /// Examples per second of single steps, without the first ones, in which caches and buffers are
  /// filled: 10, or half of a shorter run.
  Spread throughput() const;

 private:
  PhaseSeconds since_mean_, total_;
  double examples_since_mean_ = 0, wall_since_mean_ = 0;
  double sums_since_mean_s_ = 0, total_sums_s_ = 0;
  int steps_since_mean_ = 0;
  std::vector<double> rates_;
};

}  // namespace ringtrain::metrics
