#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ringtrain/metrics/scaling/step_phases.hpp"
#include "train/plan/run_plan.hpp"

namespace ringtrain::train {

/// What a run reached, and when.
struct PastRun {
  Spread examples_per_second;
  metrics::PhaseSeconds phases;  ///< of a mean step
  std::int64_t measured = 0;     ///< seconds since 1970
};

/// What a rank's speed depends on, as JSON: model, batch, optimizer, precision, data kind, build
/// and the device, which is the engine's text.
std::string speed_configuration(const RunPlan& plan, const std::string& device);
/// What the speed of all ranks together depends on: that, and the hosts, threads and sums.
std::string run_configuration(const RunPlan& plan, const std::string& device,
                              std::vector<std::string> hosts);

/// Speeds of earlier runs, kept in a folder, a file for each configuration.
class PastRuns {
 public:
  /// More files of a kind are not kept: the oldest are removed.
  static constexpr std::size_t most_files = 200;
  /// `folder` empty: none are kept or found. `kind`: the beginning of the files' names.
  PastRuns(const std::filesystem::path& folder, std::string_view kind, std::string configuration);

  /// Nothing where there is none for exactly this configuration, or it cannot be read.
  std::optional<PastRun> find() const;
  /// Replaces what was there. Returns why not, if so.
  std::string keep(const PastRun& speed) const;
  const std::filesystem::path& file() const { return file_; }

 private:
  std::string kind_, configuration_;
  std::filesystem::path file_;
};

}  // namespace ringtrain::train
