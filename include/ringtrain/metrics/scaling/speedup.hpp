#pragma once
#include <string>
#include <vector>

#include "ringtrain/base/statistics.hpp"
#include "ringtrain/metrics/scaling/step_phases.hpp"

namespace ringtrain::metrics {

/// What several ranks gain over one.
struct ScalingResult {
  Spread alone, together;    ///< examples per second; `together` over all ranks
  Spread speed_up;           ///< of windows measured one after the other
  double efficiency = 0;     ///< speed-up / ranks: weak, as each rank has the same batch
  std::string verdict = {};  ///< one or two sentences for the user
  /// The same for a step that is as large alone as together: one rank would make it of as many
  /// batches as there are ranks, and update once.
  double strong_efficiency = 0;
  double alone_jitter = 0, together_jitter = 0;  ///< spread of single steps, as a share of them
  PhaseSeconds alone_phases = {},
               together_phases = {};  ///< of a mean step; together: of a mean rank
};

/// Windows of some steps.
struct Windows {
  std::vector<double> rates;        ///< examples per second of each
  std::vector<double> step_s = {};  ///< of all steps in them
  PhaseSeconds phases = {};         ///< of a mean step in them
};

/// Compares windows measured alternately: alone.rates[i] is one rank's examples per second shortly
/// before those of all, together.rates[i]. Only such neighbours are compared, because machines
/// change their speed. Both have the same, positive number of windows.
ScalingResult compare(const Windows& alone, const Windows& together, int ranks);

/// For the user: a line with the rates, one with spreads, a table by phase, the verdict.
std::vector<std::string> speedup_lines(const ScalingResult& comparison, int ranks);

/// "1 rank", "2 ranks".
std::string ranks_text(int ranks);

}  // namespace ringtrain::metrics
