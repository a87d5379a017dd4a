#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <optional>

#include "train/slow_downs.hpp"

namespace ringtrain {
namespace {

constexpr std::size_t most_moved = 3, most_ranks = 4;  // that are told

/// A rank's mean step, before and since.
struct Growth {
  std::size_t rank = 0;
  PhaseSeconds usual, now;
  double still_s = 0;  ///< a step: more than usual, in which its process stood still

  double of(Phase phase) const { return now[phase] - usual[phase]; }
  /// But for what it waited for others.
  double work_s() const { return now.total() - usual.total() - of(Phase::comm_exposed); }
  /// A process that stands still may do so while it waits.
  double own_s() const { return std::max(still_s, work_s()); }
};

double still_share(const Vitals& from, const Vitals& to) {
  const double seconds = to.seconds - from.seconds;
  return seconds > 0 ? (to[Vital::still] - from[Vital::still]) / seconds : 0;
}

// Of the ranks that have told enough of themselves.
std::vector<Growth> growths(const ThreeMoments& m) {
  std::vector<Growth> all;
  for (std::size_t r = 0; r < std::min(m.usual.size(), m.now.size()); ++r) {
    const Account &usual = m.usual[r], &start = m.start[r], &now = m.now[r];
    if (start.spent.steps <= usual.spent.steps || now.spent.steps <= start.spent.steps) continue;
    Growth g{r, mean_step(usual.spent, start.spent), mean_step(start.spent, now.spent)};
    const double more =
        still_share(start.vitals, now.vitals) - still_share(usual.vitals, start.vitals);
    g.still_s = more * g.now.total();
    all.push_back(g);
  }
  return all;
}

// The ranks whose own work explains the growth: one does where all wait for it.
std::vector<Growth> culprits(const std::vector<Growth>& all) {
  constexpr double enough = 0.3, likewise = 0.5;
  const double most = std::ranges::max(all, {}, &Growth::own_s).own_s();
  double step_s = 0;
  for (const Growth& g : all) step_s = std::max(step_s, g.now.total() - g.usual.total());
  std::vector<Growth> found;
  for (const Growth& g : all)
    if (most > enough * step_s && g.own_s() >= likewise * most) found.push_back(g);
  return found;
}

// Waiting for others is what counts where they do nothing else for longer.
Phase most_grown(const std::vector<Growth>& all) {
  const bool with_waits = std::ranges::all_of(
      all, [](const Growth& g) { return 2 * g.work_s() < g.of(Phase::comm_exposed); });
  Phase worst = with_waits ? Phase::comm_exposed : Phase::forward;
  const auto sum = [&](Phase phase) {
    return std::accumulate(all.begin(), all.end(), 0.0,
                           [=](double s, const Growth& g) { return s + g.of(phase); });
  };
  for (std::size_t i = 0; i < phase_names.size(); ++i)
    if (const auto phase = static_cast<Phase>(i);
        (with_waits || phase != Phase::comm_exposed) && sum(phase) > sum(worst))
      worst = phase;
  return worst;
}

std::string name_of(const std::vector<Growth>& ranks, std::size_t of_all,
                    const std::vector<std::string>& hosts) {
  if (ranks.size() == of_all && of_all > 1) return "all ranks";
  std::vector<std::string> names;
  for (const Growth& g : ranks)
    names.push_back(names.size() < most_ranks ? fmt::format("rank {} ({})", g.rank, hosts[g.rank])
                                              : "...");
  names.resize(std::min(names.size(), most_ranks + 1));
  return fmt::format("{}", fmt::join(names, ", "));
}

double sending_share(const ThreeMoments& m, std::size_t rank) {
  const Vitals &start = m.start[rank].vitals, &now = m.now[rank].vitals;
  return (now[Vital::sending] - start[Vital::sending]) / (now.seconds - start.seconds);
}

/// Who sends while all others mostly wait for it.
struct Sender {
  std::size_t rank = 0;
  double share = 0, others = 0;  ///< of the time; at most, on other hosts
};

// Before a slow link data is under way all the time, before others only for as long as they take.
std::optional<Sender> busiest_sender(const ThreeMoments& m, const std::vector<Growth>& ranks,
                                     const std::vector<std::string>& hosts) {
  constexpr double enough = 0.5, clearly = 1.4;
  Sender found;
  for (const Growth& g : ranks)
    if (const double share = sending_share(m, g.rank); share > found.share)
      found = {.rank = g.rank, .share = share};
  for (const Growth& g : ranks)
    if (hosts[g.rank] != hosts[found.rank])
      found.others = std::max(found.others, sending_share(m, g.rank));
  if (found.share < enough || found.share < clearly * found.others || found.others >= 1) return {};
  return found;
}

std::string text_of(const Sender& sender, const std::vector<std::string>& hosts) {
  return fmt::format("; {} sends {:.0f} % of the time, others {:.0f} %: they wait for its link",
                     hosts[sender.rank], 100 * std::min(sender.share, 1.0), 100 * sender.others);
}

std::vector<Growth> only(std::size_t rank, std::vector<Growth> of) {
  std::erase_if(of, [=](const Growth& g) { return g.rank != rank; });
  return of;
}

// What moved where most did: ranks of a host see the same.
std::string moved_with_it(const ThreeMoments& m, const std::vector<Growth>& ranks, bool waiting,
                          const std::vector<std::string>& hosts) {
  std::vector<Moved> most;
  std::size_t where = 0;
  for (const Growth& g : ranks) {
    std::vector<Moved> moved =
        worse(m.usual[g.rank].vitals, m.start[g.rank].vitals, m.now[g.rank].vitals);
    // Who waits for others sends less, too: that tells something of the network alone.
    std::erase_if(moved, [=](const Moved& one) {
      return one.vital == Vital::sending || (!waiting && one.vital == Vital::network);
    });
    if (moved.size() > most.size()) most = std::move(moved), where = g.rank;
  }
  if (most.empty()) return "nothing else was seen to move";
  std::vector<std::string> texts;
  for (const Moved& one : most)
    if (texts.size() < most_moved) texts.push_back(one.text);
  return fmt::format("with it moved, on {}: {}", hosts[where], fmt::join(texts, ", "));
}

double mean_s(const std::vector<Growth>& ranks, PhaseSeconds Growth::*step, Phase phase) {
  double sum = 0;
  for (const Growth& g : ranks) sum += (g.*step)[phase];
  return sum / static_cast<double>(ranks.size());
}

}  // namespace

std::string what_grew(const ThreeMoments& moments, const std::vector<std::string>& hosts) {
  const std::vector<Growth> all = growths(moments);
  if (all.empty()) return "what grew is not known: the ranks have not told enough of themselves";
  std::vector<Growth> blamed = culprits(all);
  const bool waiting = blamed.empty();
  if (waiting) blamed = all;
  const Phase phase = most_grown(blamed);
  const auto sender = waiting ? busiest_sender(moments, all, hosts) : std::nullopt;
  const std::vector<Growth> moved = sender ? only(sender->rank, all) : blamed;
  return fmt::format("{} grew from {:.1f} to {:.1f} ms a step on {}{}{}; {}", words_of(phase),
                     1e3 * mean_s(blamed, &Growth::usual, phase),
                     1e3 * mean_s(blamed, &Growth::now, phase), name_of(blamed, all.size(), hosts),
                     waiting && all.size() > 1 ? ", and no rank's own work did" : "",
                     sender ? text_of(*sender, hosts) : "",
                     moved_with_it(moments, moved, waiting, hosts));
}

}  // namespace ringtrain
