#pragma once
#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "ringtrain/base/clock.hpp"
#include "ringtrain/base/statistics.hpp"

namespace ringtrain::metrics {

/// What a rank does during a step; each moment belongs to one phase.
enum class Phase { data_wait, copy, forward, backward, comm_exposed, update, checkpoint, other };

inline constexpr std::array<std::string_view, 8> phase_names = {
    "data_wait", "copy", "forward", "backward", "comm_exposed", "update", "checkpoint", "other"};

/// For plots and events: "exposed communication".
std::string_view words_of(Phase phase);

/// For tables.
inline constexpr std::array<std::string_view, phase_names.size()> phase_words = {
    "waiting for data", "copying input", "forward",       "backward",
    "communication",    "update",        "checkpointing", "other"};

/// Seconds by phase.
struct PhaseSeconds {
  std::array<double, phase_names.size()> seconds{};

  double& operator[](Phase phase) { return seconds[static_cast<std::size_t>(phase)]; }
  double operator[](Phase phase) const { return seconds[static_cast<std::size_t>(phase)]; }
  double total() const;
};

/// Where this rank's time went, step by step.
class StepTimes {
 public:
  void add(Phase phase, double seconds) { step_[phase] += seconds; }
  /// Ends a step of `wall_seconds` that trained `examples` over all ranks. What no phase accounts
  /// for is `other`, so that phases add up to the wall time. `sums_seconds`: from the start of its
  /// first sum over the ranks to the end of the last, within several phases. Returns the step.
  PhaseSeconds end_step(double wall_seconds, double examples, double sums_seconds = 0);

  struct Mean {
    PhaseSeconds phases;
    double seconds = 0;              ///< a step
    double examples_per_second = 0;  ///< examples over wall time
    double sums_seconds = 0;         ///< a step
  };
  /// The mean step since the last call, or of nothing: zeros.
  Mean take_mean();

  std::int64_t steps() const { return static_cast<std::int64_t>(rates_.size()); }
  /// Of all steps together.
  const PhaseSeconds& total() const { return total_; }
  double total_sums_seconds() const { return total_sums_s_; }
  /// Examples per second of single steps, without the first ones, in which caches and buffers are
  /// filled: 10, or half of a shorter run.
  Spread throughput() const;

 private:
  PhaseSeconds step_, since_mean_, total_;
  double examples_since_mean_ = 0, wall_since_mean_ = 0;
  double sums_since_mean_s_ = 0, total_sums_s_ = 0;
  int steps_since_mean_ = 0;
  std::vector<double> rates_;
};

}  // namespace ringtrain::metrics
