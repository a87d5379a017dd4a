#pragma once
#include <filesystem>
#include <optional>
#include <string>

#include "ringtrain/train/step_times.hpp"
#include "train/plan.hpp"

namespace ringtrain {

/// What one rank alone reached, and when.
struct LoneSpeed {
  Spread examples_per_second;
  PhaseSeconds phases;        ///< of a mean step
  std::int64_t measured = 0;  ///< seconds since 1970
};

/// What a rank's speed depends on, as JSON: model, batch, optimizer, precision, data kind, build
/// and the device, which is the site's text.
std::string speed_configuration(const Plan& plan, const std::string& device);

/// Speeds of one rank alone, kept in a folder from run to run, a file for each configuration.
class LoneSpeeds {
 public:
  /// `folder` empty: none are kept or found.
  LoneSpeeds(std::filesystem::path folder, std::string configuration);

  /// Nothing where there is none for exactly this configuration, or it cannot be read.
  std::optional<LoneSpeed> find() const;
  /// Replaces what was there. Returns why not, if so.
  std::string keep(const LoneSpeed& speed) const;
  const std::filesystem::path& file() const { return file_; }

 private:
  std::string configuration_;
  std::filesystem::path file_;
};

}  // namespace ringtrain
