#pragma once
#include <optional>
#include <string>
#include <vector>

#include "ringtrain/train/statistics.hpp"

namespace ringtrain {

/// What several ranks gain over one.
struct Comparison {
  Spread alone, together;  ///< examples per second; `together` over all ranks
  Spread speed_up;         ///< of windows measured one after the other
  double efficiency = 0;   ///< speed-up / ranks
  std::string verdict;     ///< one or two sentences for the user
};

/// Compares windows measured alternately: alone[i] is one rank's examples per second shortly before
/// those of all, together[i]. Only such neighbours are compared, because machines change their
/// speed. Both have the same, positive number of windows.
Comparison compare(const std::vector<double>& alone, const std::vector<double>& together,
                   int ranks);

}  // namespace ringtrain
