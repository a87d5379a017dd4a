#include "monitor/slowdown/slowdown_cause.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <ranges>
#include <utility>

#include "ringtrain/monitor/slowdown/speed_rule.hpp"
#include "ringtrain/monitor/telemetry/system_metrics.hpp"

namespace ringtrain::monitor {
namespace {

using Is = SlowdownConstants;
using metrics::Phase;
namespace views = std::views;
constexpr std::size_t most_named = 3;

/// A rank's mean step, and what its system did, usually and now.
struct Rank {
  std::size_t rank = 0;
  SampleSpan before, since;
  metrics::PhaseSeconds step_before, step_since;

  double grown_s(Phase phase) const { return step_since[phase] - step_before[phase]; }
  double loss_s() const { return step_since.total() - step_before.total(); }
  /// What its own work takes longer. A process that stands still may do so while it waits.
  double own_s() const {
    const double still = since.mean(SystemMetric::still) - before.mean(SystemMetric::still);
    return std::max(still * step_since.total(), loss_s() - grown_s(Phase::communication));
  }
};
using Ranks = std::vector<Rank>;

// The other ranks of a host are no other work: they take less of its CPUs when one is slow.
void leave_out_ranks(Ranks& ranks, const std::vector<std::string>& hosts) {
  const Ranks as_seen = ranks;
  for (Rank& rank : ranks)
    for (const Rank& other : as_seen) {
      if (other.rank == rank.rank || hosts[other.rank] != hosts[rank.rank]) continue;
      for (SampleSpan Rank::*span : {&Rank::before, &Rank::since}) {
        const double own_s = (other.*span).mean(SystemMetric::own_cpu) * (rank.*span).seconds();
        double& others_s = (rank.*span).end[SystemMetric::others];
        const double least_s = (rank.*span).begin[SystemMetric::others];
        others_s = std::max(others_s - own_s, least_s);  // in this order: what is unknown stays so
      }
    }
}

Ranks known_ranks(std::span<const RankStats> usual, std::span<const RankStats> now,
                  const std::vector<std::string>& hosts) {
  Ranks known;
  for (std::size_t r = 0; r < std::min(usual.size(), now.size()); ++r) {
    const RankStats &u = usual[r], &n = now[r];
    if (u.spent.steps > 0 && n.spent.steps > 0 && u.system.seconds > 0 && n.system.seconds > 0)
      known.push_back(
          {r, {{}, u.system}, {{}, n.system}, mean_step({}, u.spent), mean_step({}, n.spent)});
  }
  leave_out_ranks(known, hosts);
  return known;
}

/// What is to be told of one slow-down.
struct Finding {
  const Ranks& all;
  const std::vector<std::string>& hosts;
  double loss_s = 0;
  Ranks blamed = {};                         ///< whose own work explains it
  std::string sender = {}, how_sender = {};  ///< else the host that all wait for

  std::string name(const Rank& rank) const {
    return fmt::format("rank {} ({})", rank.rank, hosts[rank.rank]);
  }
  bool several_hosts() const {
    return std::ranges::any_of(hosts, [&](const std::string& h) { return h != hosts[0]; });
  }
};

void blame_ranks(Finding& f) {
  const double most = std::ranges::max(f.all, {}, &Rank::own_s).own_s();
  if (most < Is::explained * f.loss_s) return;
  for (const Rank& rank : f.all)
    if (rank.own_s() >= Is::explained * most) f.blamed.push_back(rank);
}

bool is_of_network(const MetricChange& moved) {
  return moved.metric >= SystemMetric::network && moved.metric <= SystemMetric::sending;
}

// Before a slow link data is under way all the time, before others only for as long as they take.
void blame_link(Finding& f) {
  const auto sends = [](const Rank& r) { return r.since.mean(SystemMetric::sending); };
  const Rank& most = std::ranges::max(f.all, {}, sends);
  const std::string& host = f.hosts[most.rank];
  double others = 0;
  for (const Rank& rank : f.all)
    if (f.hosts[rank.rank] != host) others = std::max(others, sends(rank));
  if (sends(most) >= Is::explained && others < Is::at_once * std::min(sends(most), 1.0)) {
    f.sender = host;
    f.how_sender =
        fmt::format("; {} sends {:.0f} % of the time, others {:.0f} %: they wait for its link",
                    host, 100 * std::min(sends(most), 1.0), 100 * others);
    return;
  }
  const auto loses = [](const MetricChange& moved) {
    return moved.metric > SystemMetric::network && moved.metric < SystemMetric::sending;
  };
  for (const Rank& rank : f.all) {
    if (std::ranges::none_of(worse(rank.before, rank.since), loses)) continue;
    const std::string& lossy = f.hosts[rank.rank];
    if (!f.sender.empty() && f.sender != lossy) return f.sender.clear();
    f.sender = lossy;
  }
}

// What became worse on the host where most did: ranks of a host see the same.
std::pair<std::string, std::vector<MetricChange>> most_moved(const Finding& f) {
  std::pair<std::string, std::vector<MetricChange>> most;
  for (const Rank& rank : f.blamed.empty() ? f.all : f.blamed) {
    const std::string& host = f.hosts[rank.rank];
    if (!f.sender.empty() && host != f.sender) continue;
    std::vector<MetricChange> moved = worse(rank.before, rank.since);
    // Who waits sends less and is preempted more often, and memory alone slows nothing down.
    const auto has = [&](SystemMetric metric) {
      return std::ranges::find(moved, metric, &MetricChange::metric) != moved.end();
    };
    const bool pages = has(SystemMetric::major_faults), others = has(SystemMetric::others);
    std::erase_if(moved, [&](const MetricChange& one) {
      return one.metric == SystemMetric::sending ||
             (f.sender.empty() && one.metric == SystemMetric::network) ||
             (f.blamed.empty() && !others && one.metric == SystemMetric::preempted) ||
             (!pages && one.metric == SystemMetric::resident);
    });
    if (most.first.empty() || moved.size() > most.second.size()) most = {host, std::move(moved)};
  }
  if (!f.sender.empty()) std::ranges::stable_partition(most.second, is_of_network);
  return most;
}

// Where nothing else tells what to do.
std::string_view advice_for(Phase phase) {
  switch (phase) {
    case Phase::data_wait:
      return "look at the storage of --data (iostat, nfsiostat), or raise --data-threads";
    case Phase::checkpoint:
      return "look at the storage of --checkpoint-dir, or save less often";
    case Phase::communication:
      return "look at the links between the hosts (ethtool, ethtool -S); --timeline shows who "
             "waits for whom";
    default:
      return "--timeline shows where the time goes";
  }
}

std::string growth(const Ranks& ranks, Phase phase) {
  const double to_ms = 1e3 / static_cast<double>(ranks.size());
  double before = 0, since = 0;
  for (const Rank& rank : ranks) {
    before += to_ms * rank.step_before[phase];
    since += to_ms * rank.step_since[phase];
  }
  return fmt::format("{} grew from {:.1f} to {:.1f} ms a step", metrics::phase_names(phase).words,
                     before, since);
}

Phase most_grown(const Ranks& ranks) {
  const auto grown_s = [&](Phase phase) {
    double sum = 0;
    for (const Rank& rank : ranks) sum += rank.grown_s(phase);
    return phase == Phase::communication ? -1e9 : sum;
  };
  return std::ranges::max(metrics::ledger_phases, {}, grown_s);
}

std::string of_blamed(const Finding& f) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < std::min(f.blamed.size(), most_named + 1); ++i)
    names.push_back(i < most_named ? f.name(f.blamed[i]) : "...");
  const Rank& most = std::ranges::max(f.blamed, {}, &Rank::own_s);
  const bool is_all = f.blamed.size() == f.all.size() && f.all.size() > 1;
  const Phase phase = most_grown(f.blamed);
  const bool works = most.grown_s(phase) >= Is::explained * most.own_s() / 2;
  return fmt::format("{} on {}, {} explains {:.0f} % of the loss",
                     works ? growth(f.blamed, phase) : "waiting grew",
                     is_all ? "all ranks" : fmt::format("{}", fmt::join(names, ", ")),
                     works ? "own work" : "standing still in it",
                     100 * std::min(1.0, most.own_s() / f.loss_s));
}

// As a table of one line: | phase | rank | milliseconds a step |
std::string largest_changes(const Finding& f) {
  std::vector<std::pair<double, std::string>> rows;
  for (const Phase phase : metrics::ledger_phases) {
    const Rank& most = std::ranges::max(f.all, {}, [&](const Rank& r) { return r.grown_s(phase); });
    rows.emplace_back(
        most.grown_s(phase),
        fmt::format(" | {} | {} | {:.1f} -> {:.1f} ms", metrics::phase_names(phase).words,
                    f.name(most), 1e3 * most.step_before[phase], 1e3 * most.step_since[phase]));
  }
  std::ranges::sort(rows, std::greater());
  return fmt::format("{} |", fmt::join(rows | views::take(most_named) | views::values, ""));
}

}  // namespace

SlowdownCause explain_slowdown(std::span<const RankStats> usual, std::span<const RankStats> now,
                               const std::vector<std::string>& hosts) {
  const Ranks all = known_ranks(usual, now, hosts);
  if (all.empty()) return {"cause unknown: the ranks have not told enough of themselves"};
  Finding f{.all = all, .hosts = hosts};
  f.loss_s = std::ranges::max(all, {}, &Rank::loss_s).loss_s();
  if (f.loss_s > 0) blame_ranks(f);
  const bool waits = f.blamed.empty() && f.several_hosts();
  if (waits) blame_link(f);
  const Phase phase = f.blamed.empty() ? Phase::communication : most_grown(f.blamed);
  std::string text =
      !f.blamed.empty() ? of_blamed(f)
      : !f.sender.empty()
          ? growth(all, phase) + " on all ranks, and no rank's own work did" + f.how_sender
          : "cause unknown: no rank's own work explains half of it" + largest_changes(f);
  const auto [host, moved] = most_moved(f);
  const auto texts = moved | views::take(most_named) | views::transform(&MetricChange::text);
  text += moved.empty() ? "; ruled out, none of them moved: " +
                              watched_metrics(all.front().since.end, f.several_hosts())
                        : fmt::format("; with it moved, on {}: {}", host, fmt::join(texts, ", "));
  const bool advises = !moved.empty() && (f.sender.empty() || is_of_network(moved.front()));
  text += fmt::format("; what to do: {}", advises             ? moved.front().advice
                                          : !f.sender.empty() ? advice_for(SystemMetric::sending)
                                                              : advice_for(phase));
  return {std::move(text), waits};
}

std::string explain_slower_run(const metrics::PhaseSeconds& step, const metrics::PhaseSeconds& then,
                               const std::string& host) {
  const Phase worst = std::ranges::max(metrics::ledger_phases, {},
                                       [&](Phase phase) { return step[phase] - then[phase]; });
  return fmt::format("on rank 0 ({}), {} takes {:.1f} ms of {:.1f} ms a step{}; what to do: {}",
                     host, metrics::phase_names(worst).words, 1e3 * step[worst], 1e3 * step.total(),
                     then.total() > 0 ? fmt::format(", {:.1f} ms then", 1e3 * then[worst]) : "",
                     advice_for(worst));
}

}  // namespace ringtrain::monitor
