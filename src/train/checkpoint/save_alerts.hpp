#pragma once
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "ringtrain/base/clock.hpp"
#include "ringtrain/io/checkpoint_writer/checkpoint_writer.hpp"

namespace ringtrain::train {

/// Decides what the user is told of saves: each cause of trouble once, with the age of the last
/// good checkpoint, and its end.
class SaveAlerts {
 public:
  /// `resumed_step`: of the checkpoint that training went on from; 0: of none.
  explicit SaveAlerts(std::uint64_t resumed_step) : resumed_step_(resumed_step) {}

  /// What to tell of a save that failed, was skipped, or takes long, or of a lost writer; empty
  /// where that cause was told and has not ended since.
  std::string trouble(const io::SaveEvent& event);
  /// A save is durable: what to tell if that ends the trouble; else empty. One good save ends
  /// failures; slow or skipped saves have ended once a save and the time before it knew none.
  std::string good(const io::SaveEvent& event);

  /// "the last good checkpoint is of step 240, 95 s ago"
  std::string last_good() const;
  /// Step and age of the last one that became durable in this run.
  const std::optional<std::pair<std::uint64_t, Stopwatch>>& last() const { return last_; }

 private:
  std::uint64_t resumed_step_;
  std::optional<std::pair<std::uint64_t, Stopwatch>> last_;
  std::set<std::string> told_;  // causes since the last end of trouble
  bool late_ = false;           // slow or skipped saves since the last good one
};

}  // namespace ringtrain::train
