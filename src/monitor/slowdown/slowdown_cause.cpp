#include "monitor/slowdown/slowdown_cause.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "ringtrain/monitor/slowdown/slowdown_report.hpp"
#include "ringtrain/monitor/telemetry/system_metrics.hpp"

namespace ringtrain::monitor {
namespace {

constexpr std::size_t most_moved = 3, most_ranks = 4;  // that are named
constexpr std::string_view unknown =
    "what grew is not known: the ranks have not told enough of themselves";

/// What one rank told of itself at both ends of the two stretches.
struct RankSpans {
  std::size_t rank = 0;
  SampleSpan before, since;
  metrics::PhaseSeconds step_before, step_since;  ///< the mean step

  double grown_s(metrics::Phase phase) const { return step_since[phase] - step_before[phase]; }
  /// Seconds a step of growth, without what it waits for other ranks.
  double work_s() const {
    return step_since.total() - step_before.total() - grown_s(metrics::Phase::communication);
  }
  /// Seconds a step that its process stands still for longer than before.
  double still_s() const {
    if (before.seconds() <= 0 || since.seconds() <= 0) return 0;
    return (since.mean(SystemMetric::still) - before.mean(SystemMetric::still)) *
           step_since.total();
  }
  /// A process that stands still may do so while it waits.
  double own_s() const { return std::max(still_s(), work_s()); }
};
using Ranks = std::vector<RankSpans>;

// Of the ranks that have told enough of themselves. Accounts are sums since a process began, so one
// that was not known yet is empty. Without `before` there is nothing of it.
Ranks ranks_of(const AccountsSpan& before, const AccountsSpan& since) {
  Ranks all;
  if (before.end.empty()) {
    for (std::size_t r = 0; r < since.end.size(); ++r) {
      const RankStats s = r < since.begin.size() ? since.begin[r] : RankStats{}, &n = since.end[r];
      if (n.spent.steps > s.spent.steps)
        all.push_back({r, {}, {s.system, n.system}, {}, mean_step(s.spent, n.spent)});
    }
    return all;
  }
  for (std::size_t r = 0; r < std::min(before.end.size(), since.end.size()); ++r) {
    const RankStats b = r < before.begin.size() ? before.begin[r] : RankStats{}, &e = before.end[r];
    const RankStats s = r < since.begin.size() ? since.begin[r] : RankStats{}, &n = since.end[r];
    if (e.spent.steps > b.spent.steps && n.spent.steps > s.spent.steps)
      all.push_back({r,
                     {b.system, e.system},
                     {s.system, n.system},
                     mean_step(b.spent, e.spent),
                     mean_step(s.spent, n.spent)});
  }
  return all;
}

Ranks known_in_both(const AccountsSpan& before, const AccountsSpan& since) {
  return before.end.empty() ? Ranks() : ranks_of(before, since);
}

// The ranks whose own work explains the growth: one does where all wait for it.
Ranks culprits(const Ranks& all) {
  constexpr double enough = 0.3, likewise = 0.5;
  const double most = std::ranges::max(all, {}, &RankSpans::own_s).own_s();
  double step_s = 0;
  for (const RankSpans& g : all)
    step_s = std::max(step_s, g.step_since.total() - g.step_before.total());
  Ranks found;
  for (const RankSpans& g : all)
    if (most > enough * step_s && g.own_s() >= likewise * most) found.push_back(g);
  return found;
}

// And nobody but the job has taken CPUs from it.
bool waits_most(const RankSpans& rank) {
  const auto takes_cpus = [](const MetricChange& moved) {
    return moved.metric == SystemMetric::others || moved.metric == SystemMetric::throttled ||
           moved.metric == SystemMetric::stolen;
  };
  return rank.grown_s(metrics::Phase::communication) > rank.own_s() &&
         std::ranges::none_of(worse(rank.before, rank.since), takes_cpus);
}

// Waiting for others is what counts where they do nothing else for longer.
metrics::Phase most_grown(const Ranks& all) {
  const bool with_waits = std::ranges::all_of(all, [](const RankSpans& g) {
    return 2 * g.work_s() < g.grown_s(metrics::Phase::communication);
  });
  metrics::Phase worst = with_waits ? metrics::Phase::communication : metrics::Phase::forward;
  const auto sum = [&](metrics::Phase phase) {
    return std::accumulate(all.begin(), all.end(), 0.0,
                           [=](double s, const RankSpans& g) { return s + g.grown_s(phase); });
  };
  for (const metrics::Phase phase : metrics::ledger_phases)
    if ((with_waits || phase != metrics::Phase::communication) && sum(phase) > sum(worst))
      worst = phase;
  return worst;
}

std::string name_of(const Ranks& ranks, std::size_t of_all, const std::vector<std::string>& hosts) {
  if (ranks.size() == of_all && of_all > 1) return "all ranks";
  std::vector<std::string> names;
  for (const RankSpans& g : ranks)
    names.push_back(names.size() < most_ranks ? fmt::format("rank {} ({})", g.rank, hosts[g.rank])
                                              : "...");
  names.resize(std::min(names.size(), most_ranks + 1));
  return fmt::format("{}", fmt::join(names, ", "));
}

/// The host that sends while all others mostly wait for it.
struct Sender {
  std::size_t rank = 0;
  double share = 0, others = 0;  ///< of the time; at most, on other hosts
};

// Before a slow link data is under way all the time, before others only for as long as they take.
std::optional<Sender> busiest_sender(const Ranks& ranks, const std::vector<std::string>& hosts) {
  constexpr double enough = 0.5, clearly = 1.4;
  Sender found;
  const auto share = [](const RankSpans& r) {
    return r.since.seconds() > 0 ? r.since.mean(SystemMetric::sending) : 0;
  };
  for (const RankSpans& r : ranks)
    if (share(r) > found.share) found = {.rank = r.rank, .share = share(r)};
  for (const RankSpans& r : ranks)
    if (hosts[r.rank] != hosts[found.rank]) found.others = std::max(found.others, share(r));
  if (found.share < enough || found.share < clearly * found.others || found.others >= 1) return {};
  return found;
}

std::string text_of(const Sender& sender, const std::vector<std::string>& hosts) {
  return fmt::format("; {} sends {:.0f} % of the time, others {:.0f} %: they wait for its link",
                     hosts[sender.rank], 100 * std::min(sender.share, 1.0), 100 * sender.others);
}

Ranks only(std::size_t rank, Ranks of) {
  std::erase_if(of, [=](const RankSpans& r) { return r.rank != rank; });
  return of;
}

/// What became worse on the host where most did: ranks of a host see the same.
struct ChangesOnHost {
  std::size_t rank = 0;
  std::vector<MetricChange> moved;
};

template <SystemMetric metric>
bool is_of(const MetricChange& moved) {
  return moved.metric == metric;
}

bool is_of_network(const MetricChange& moved) {
  return moved.metric >= SystemMetric::network && moved.metric <= SystemMetric::sending;
}

ChangesOnHost most_moved_on(const Ranks& ranks, bool waiting) {
  ChangesOnHost most;
  for (const RankSpans& r : ranks) {
    std::vector<MetricChange> moved = worse(r.before, r.since);
    // Who waits for others sends less, too: that tells something of the network alone.
    // Memory that a process takes slows nothing down, unless its host has to page.
    // Who waits sleeps and wakes more often, and is preempted more often without other work.
    const bool pages = std::ranges::any_of(moved, is_of<SystemMetric::major_faults>);
    const bool others = std::ranges::any_of(moved, is_of<SystemMetric::others>);
    std::erase_if(moved, [=](const MetricChange& one) {
      return one.metric == SystemMetric::sending ||
             (!waiting && one.metric == SystemMetric::network) ||
             (waiting && !others && one.metric == SystemMetric::preempted) ||
             (!pages && one.metric == SystemMetric::resident);
    });
    if (moved.size() > most.moved.size()) most = {r.rank, std::move(moved)};
  }
  if (waiting)  // it is mostly the network that is waited for
    std::ranges::stable_partition(most.moved, is_of_network);
  return most;
}

std::string text_of(const ChangesOnHost& most, const std::vector<std::string>& hosts) {
  std::vector<std::string> texts;
  for (const MetricChange& one : most.moved)
    if (texts.size() < most_moved) texts.push_back(one.text);
  return fmt::format("with it moved, on {}: {}", hosts[most.rank], fmt::join(texts, ", "));
}

// Where nothing else tells what to do.
std::string_view advice_for(metrics::Phase phase) {
  switch (phase) {
    case metrics::Phase::data_wait:
      return "look at the storage of --data (iostat, nfsiostat), or raise --data-threads";
    case metrics::Phase::checkpoint:
      return "look at the storage of --checkpoint-dir, or save less often";
    case metrics::Phase::communication:
      return "look at the links between the hosts (ethtool, ethtool -S); --timeline shows who "
             "waits for whom";
    default:
      return "--timeline shows where the time goes";
  }
}

double mean_s(const Ranks& ranks, metrics::PhaseSeconds RankSpans::*step, metrics::Phase phase) {
  double sum = 0;
  for (const RankSpans& r : ranks) sum += (r.*step)[phase];
  return sum / static_cast<double>(ranks.size());
}

bool several(const std::vector<std::string>& hosts) {
  return std::ranges::any_of(hosts, [&](const std::string& host) { return host != hosts[0]; });
}

}  // namespace

bool can_explain(const AccountsSpan& before, const AccountsSpan& since) {
  return !known_in_both(before, since).empty();
}

SlowdownCause explain_slowdown(const AccountsSpan& before, const AccountsSpan& since,
                               const std::vector<std::string>& hosts) {
  const Ranks all = known_in_both(before, since);
  if (all.empty()) return {std::string(unknown)};
  Ranks blamed = culprits(all);
  auto sender = busiest_sender(all, hosts);
  // Ranks that wait for a slow link take CPU from the work of ranks beside them.
  const bool link_is_slower = sender && !blamed.empty() && std::ranges::all_of(blamed, waits_most);
  const bool waiting = blamed.empty() || link_is_slower;
  if (waiting)
    blamed = all;
  else
    sender.reset();
  const metrics::Phase phase = link_is_slower ? metrics::Phase::communication : most_grown(blamed);
  const ChangesOnHost moved = most_moved_on(sender ? only(sender->rank, all) : blamed, waiting);
  const std::string cause = moved.moved.empty()
                                ? "ruled out, none of them moved: " +
                                      watched_metrics(blamed.front().since.end, several(hosts))
                                : text_of(moved, hosts);
  const bool advises = !moved.moved.empty() && (!sender || is_of_network(moved.moved.front()));
  std::string text = fmt::format(
      "{} grew from {:.1f} to {:.1f} ms a step on {}{}{}; {}; what to do: {}",
      metrics::phase_names(phase).words, 1e3 * mean_s(blamed, &RankSpans::step_before, phase),
      1e3 * mean_s(blamed, &RankSpans::step_since, phase), name_of(blamed, all.size(), hosts),
      link_is_slower              ? ", more than any rank's own work"
      : waiting && all.size() > 1 ? ", and no rank's own work did"
                                  : "",
      sender ? text_of(*sender, hosts) : "", cause,
      advises  ? moved.moved.front().advice
      : sender ? advice_for(SystemMetric::sending)
               : advice_for(phase));
  const bool found = sender || !std::ranges::all_of(moved.moved, is_of<SystemMetric::no_cpu>);
  return {std::move(text), waiting && several(hosts), found};
}

SlowdownCause explain_slower_than_expected(const AccountsSpan& now,
                                           const metrics::PhaseSeconds& expected,
                                           const std::vector<std::string>& hosts) {
  const Ranks ranks = ranks_of({}, now);
  if (ranks.empty()) return {std::string(unknown)};
  std::vector<metrics::PhaseSeconds> steps;
  std::vector<double> work_s;
  for (const RankSpans& r : ranks) {
    steps.push_back(r.step_since);
    work_s.push_back(own_work_s(r.step_since));
  }
  const auto slowest = static_cast<std::size_t>(std::ranges::max_element(work_s) - work_s.begin());
  if (is_slow(work_s[slowest], lower_median(work_s), steps[slowest].total(),
              {.times_median = 1.3})) {
    const PhaseLag lag = worst_lag(slowest, steps);
    return {fmt::format(
        "rank {} ({}) holds up the others: {} takes {:.1f} ms a step, median {:.1f}; "
        "what to do: {}",
        ranks[slowest].rank, hosts[ranks[slowest].rank], metrics::phase_names(lag.phase).words,
        1e3 * lag.seconds, 1e3 * lag.median, advice_for(lag.phase))};
  }
  const auto sender = busiest_sender(ranks, hosts);
  const metrics::PhaseSeconds& step = steps.front();
  const metrics::Phase worst =
      std::ranges::max(metrics::ledger_phases, {},
                       [&](metrics::Phase phase) { return step[phase] - expected[phase]; });
  const std::string then =
      expected.total() > 0 ? fmt::format(", {:.1f} ms then", 1e3 * expected[worst]) : "";
  return {fmt::format("on rank 0 ({}), {} takes {:.1f} ms of {:.1f} ms a step{}{}; what to do: {}",
                      hosts[0], metrics::phase_names(worst).words, 1e3 * step[worst],
                      1e3 * step.total(), then, sender ? text_of(*sender, hosts) : "",
                      sender ? advice_for(SystemMetric::sending) : advice_for(worst)),
          worst == metrics::Phase::communication && several(hosts)};
}

// On links that no step waits for, other work on the hosts makes more of a difference.
std::string compare_links(const LinkSpeeds& l) {
  constexpr double slower = 0.85, part_of_step = 0.1, mb = 1e6;
  const std::size_t links = l.now.size();
  const auto from_to = [&](std::size_t link) {
    return fmt::format("from {} to {}", l.hosts[link], l.hosts[(link + 1) % links]);
  };
  std::vector<std::size_t> slow, others;
  for (std::size_t k = 0; k < links; ++k) {
    const bool counts = l.step_bytes / l.now[k] > part_of_step * l.step_s;
    (counts && l.now[k] < slower * l.start[k] ? slow : others).push_back(k);
  }
  const auto speed = [&](std::size_t link) { return l.now[link]; };
  if (slow.empty()) {
    const std::size_t least = std::ranges::min(others, {}, speed);
    return fmt::format(
        "no link between hosts explains it: the slowest, {}, carries {:.3g} MB/s, {:.3g} at the "
        "start, and so a step's sums in {:.1f} of {:.1f} ms; what to do: {}",
        from_to(least), l.now[least] / mb, l.start[least] / mb, 1e3 * l.step_bytes / l.now[least],
        1e3 * l.step_s, advice_for(metrics::Phase::communication));
  }
  std::ranges::sort(slow, {}, speed);
  std::vector<std::string> texts;
  for (const std::size_t k : slow)
    if (texts.size() < most_moved)
      texts.push_back(fmt::format("{} {:.3g} MB/s, {:.3g} at the start", from_to(k), l.now[k] / mb,
                                  l.start[k] / mb));
  if (slow.size() > texts.size())
    texts.push_back(fmt::format("{} more", slow.size() - texts.size()));
  if (!others.empty())
    texts.push_back(fmt::format("{} of {} hold up no step", others.size(), links));
  return fmt::format(
      "{}; what to do: see what else {} sends and {} receives, and look at their "
      "network cards, cables and switch ports (ethtool, ethtool -S)",
      fmt::join(texts, "; "), l.hosts[slow.front()], l.hosts[(slow.front() + 1) % links]);
}

metrics::PhaseSeconds mean_step_of(std::size_t rank, const AccountsSpan& span) {
  for (const RankSpans& known : ranks_of({}, span))
    if (known.rank == rank) return known.step_since;
  return {};
}

}  // namespace ringtrain::monitor
