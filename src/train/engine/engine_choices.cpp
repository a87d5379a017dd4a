#include "train/engine/engine_choices.hpp"

#include <fmt/ranges.h>

#include <algorithm>

#include "ringtrain/base/text.hpp"

namespace ringtrain::train {
namespace {

std::vector<int> leaders(const std::vector<std::string>& kinds) {
  std::vector<int> leader_of;
  for (const std::string& kind : kinds)
    leader_of.push_back(static_cast<int>(std::ranges::find(kinds, kind) - kinds.begin()));
  return leader_of;
}

}  // namespace

EngineChoices::EngineChoices(compute::GpuBackend& backend, const allreduce::MpiSession& session)
    : backend_(backend), session_(session) {
  const auto kinds = session.gather(backend.engine_scope());
  leader_of_ = leaders(split(session.broadcast(fmt::format("{}", fmt::join(kinds, "\n"))), '\n'));
  share();
}

void EngineChoices::share() {
  session_.barrier_asleep();
  for (int leader = 0; leader < session_.size(); ++leader) {
    if (leader_of_[static_cast<std::size_t>(leader)] != leader) continue;
    const bool mine = leader == session_.rank();
    const std::string choices = session_.broadcast(mine ? backend_.engine_choices() : "", leader);
    if (!mine && leader_of_[rank()] == leader) backend_.follow(choices);
  }
}

}  // namespace ringtrain::train
