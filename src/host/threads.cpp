#include "ringtrain/host/threads.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "ringtrain/base/error.hpp"
#include "ringtrain/base/units.hpp"

namespace ringtrain {
namespace {

using Core = std::vector<int>;  // ids of its cpus

std::vector<Core> cores_of(std::vector<Cpu> cpus) {
  std::ranges::sort(cpus, {}, [](const Cpu& c) { return std::tuple(c.package, c.core, c.id); });
  std::vector<Core> cores;
  for (std::size_t i = 0; i < cpus.size(); ++i) {
    const bool same =
        i > 0 && cpus[i].core == cpus[i - 1].core && cpus[i].package == cpus[i - 1].package;
    if (!same) cores.emplace_back();
    cores.back().push_back(cpus[i].id);
  }
  return cores;
}

/// The cores of one rank: equal parts but for a remainder, all of them where they do not suffice.
std::vector<Core> share_of(const std::vector<Core>& cores, const Place& place) {
  const auto ranks = static_cast<std::size_t>(place.local_size);
  const auto rank = static_cast<std::size_t>(place.local_rank);
  if (place.placed || cores.size() < ranks) return cores;
  const auto begin = [&](std::size_t r) {
    return cores.begin() + static_cast<std::ptrdiff_t>(cores.size() * r / ranks);
  };
  return {begin(rank), begin(rank + 1)};
}

/// As many for every rank: the slowest rank sets the pace.
int default_threads(std::size_t cores, const Place& place) {
  const auto ranks = static_cast<std::size_t>(place.local_size);
  const std::size_t whole = place.placed ? cores : cores / ranks;
  const double paid = place.quota / place.local_size;
  return std::max(1, static_cast<int>(std::min(static_cast<double>(whole), std::floor(paid))));
}

std::string text_of(const ThreadPlan& plan, const Place& place, bool crowded) {
  std::string text = fmt::format("threads: {} a rank", plan.threads);
  if (place.requested) text += fmt::format(" (as {} asks)", place.requested_by);
  text += fmt::format(" on {} {}", plan.cpus.size() == 1 ? "cpu" : "cpus", ranges_text(plan.cpus));
  if (place.placed)
    text += ", where the launcher was told to put it";
  else
    text += fmt::format(" ({}, {} on this host)", plural(place.cpus.size(), "cpu"),
                        plural(static_cast<std::size_t>(place.local_size), "rank"));
  if (!std::isinf(place.quota)) text += fmt::format(", time for {:.3g} cpus", place.quota);
  text += fmt::format(", wait policy {}", plan.active_wait ? "active" : "passive");
  if (crowded) text += "; more threads than cores";
  return text;
}

bool is_crowded(int threads, std::size_t cores, const Place& place) {
  const auto all = static_cast<std::size_t>(threads) * place.local_size;
  return static_cast<double>(all) > place.quota || (place.placed ? threads : all) > cores;
}

}  // namespace

ThreadPlan plan_threads(const Place& place) {
  expects(!place.cpus.empty() && place.local_rank >= 0 && place.local_rank < place.local_size,
          "plan_threads: a host with a cpu, and a rank on it");
  const std::vector<Core> cores = cores_of(place.cpus);
  ThreadPlan plan;
  for (const Core& core : share_of(cores, place))
    plan.cpus.insert(plan.cpus.end(), core.begin(), core.end());
  std::ranges::sort(plan.cpus);
  plan.threads = place.requested.value_or(default_threads(cores.size(), place));
  const bool crowded = is_crowded(plan.threads, cores.size(), place);
  plan.active_wait = !crowded;
  plan.text = text_of(plan, place, crowded);
  return plan;
}

}  // namespace ringtrain
