#include "support/host_nccl/fault.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <string>

namespace ringtrain::host_nccl {

Fault Fault::of(int rank) {
  constexpr std::array names{"none", "slow",  "hang",    "error", "dead",
                             "late", "stuck", "capture", "block"};
  const char* const asked = std::getenv("SIMULATED_NCCL_FAULT");
  if (asked == nullptr || *asked == 0) return {};
  std::istringstream words(asked);
  std::string kind, of_rank, from;
  std::getline(words, kind, ':');
  std::getline(words, of_rank, ':');
  std::getline(words, from);
  const auto found = std::ranges::find(names, kind);
  if (found == names.end()) throw std::invalid_argument("SIMULATED_NCCL_FAULT: " + kind);
  if (std::stoi(of_rank) != rank) return {};
  return {static_cast<Kind>(std::distance(names.begin(), found)), std::stoull(from)};
}

}  // namespace ringtrain::host_nccl
