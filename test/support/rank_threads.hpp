#pragma once
#include <barrier>
#include <vector>

#include "ringtrain/base/memory/view.hpp"

namespace ringtrain {

/// Ranks that are threads and sum what each of them hands in, in order of rank. Remembers all of
/// it.
class RankThreads {
 public:
  explicit RankThreads(int ranks)
      : rendezvous_(ranks), handed_in_(static_cast<std::size_t>(ranks)) {}

  /// On the thread of `rank`; waits for the others.
  void sum(int rank, View values) {
    const auto host = values.host();
    handed_in_[static_cast<std::size_t>(rank)].emplace_back(host.begin(), host.end());
    rendezvous_.arrive_and_wait();
    std::vector<float> total(host.size());
    for (const auto& of_rank : handed_in_)
      for (std::size_t i = 0; i < total.size(); ++i) total[i] += of_rank.back().at(i);
    rendezvous_.arrive_and_wait();  // before a rank comes back with more
    std::ranges::copy(total, host.begin());
  }
  /// Call by call.
  const std::vector<std::vector<float>>& handed_in(int rank) const {
    return handed_in_[static_cast<std::size_t>(rank)];
  }

 private:
  std::barrier<> rendezvous_;
  std::vector<std::vector<std::vector<float>>> handed_in_;
};

}  // namespace ringtrain
