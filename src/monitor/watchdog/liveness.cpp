#include "ringtrain/monitor/watchdog/liveness.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <functional>
#include <string>
#include <tuple>

#include "ringtrain/base/error.hpp"

namespace ringtrain::monitor {
namespace {

// In which the goodbye of a rank that fails, or mpirun, may still say why it ended.
constexpr double goodbye_s = 0.5;
// Others may wait so long for ranks that were never heard.
constexpr double most_unheard_s = 900;

using Views = std::span<const RankHealth>;

std::vector<int> those(Views ranks, const std::function<bool(const RankHealth&)>& wanted) {
  std::vector<int> found;
  for (std::size_t r = 0; r < ranks.size(); ++r)
    if (!ranks[r].left && wanted(ranks[r])) found.push_back(static_cast<int>(r));
  return found;
}

bool has_ended(const RankHealth& rank) {
  return rank.process == ProcessState::gone &&
         (rank.lost ? rank.lost_s : rank.silent_s) > goodbye_s;
}
bool overdue(const RankHealth& rank) { return rank.status.in_phase_s > rank.status.limit_s; }
bool waiting(const RankHealth& rank) { return waits_for_ranks(rank.status.phase); }

// Phases come in this order within a step, so the least of them is where the others' wait begins.
auto place(const RankStatus& status) {
  return std::tuple(status.step, status.phase, status.meetings);
}

// Of `candidates`, those furthest behind.
std::vector<int> furthest_behind(Views ranks, std::span<const int> candidates) {
  const auto place_of = [&](int r) { return place(ranks[static_cast<std::size_t>(r)].status); };
  const int last = *std::ranges::min_element(candidates, {}, place_of);
  std::vector<int> behind;
  for (const int r : candidates)
    if (place_of(r) == place_of(last)) behind.push_back(r);
  return behind;
}

std::optional<Verdict> stuck_at_work(Views ranks) {
  const auto late = those(ranks, [](const RankHealth& r) { return !waiting(r) && overdue(r); });
  if (late.empty()) return std::nullopt;
  const auto culprits = furthest_behind(ranks, late);
  return Verdict{Verdict::Kind::stuck, culprits,
                 ranks[static_cast<std::size_t>(culprits.front())].status.phase};
}

bool between_hosts(Views ranks) {
  return std::ranges::any_of(ranks, [&](const RankHealth& r) { return r.host != ranks[0].host; });
}

std::optional<Verdict> all_wait(Views ranks) {
  const auto present = those(ranks, [](const RankHealth& r) { return r.connected; });
  // What others do, whom nobody hears, may take long.
  const bool all_heard = those(ranks, [](const RankHealth& r) { return !r.connected; }).empty();
  const double patience_s = all_heard ? 0 : most_unheard_s;
  const auto late = those(ranks, [=](const RankHealth& r) {
    return waiting(r) && overdue(r) && r.status.in_phase_s > patience_s;
  });
  if (late.size() != present.size() || present.empty()) return std::nullopt;
  const auto behind = furthest_behind(ranks, present);
  const metrics::Phase phase = ranks[static_cast<std::size_t>(behind.front())].status.phase;
  if (present.size() > 1 && (behind.size() == present.size() || between_hosts(ranks)))
    return Verdict{Verdict::Kind::stuck, {}, phase};
  return Verdict{Verdict::Kind::stuck, behind, phase};
}

// What a run begins with, and what tells of progress in it.
bool starts(metrics::Phase phase) { return phase < metrics::Phase::data_wait; }

// "open /mnt/dead/metrics.jsonl"
std::string at_what(const RankStatus& s) {
  return std::string(metrics::phase_names(s.phase).watchdog) + (s.item.empty() ? "" : " " + s.item);
}

std::string who(int rank, std::span<const std::string> hosts) {
  return fmt::format("rank {} on {}", rank, hosts[static_cast<std::size_t>(rank)]);
}

std::string what_of(const Verdict& verdict, const RankHealth& rank) {
  const RankStatus& s = rank.status;
  switch (verdict.kind) {
    case Verdict::Kind::dead:
      return fmt::format("has ended without a word in {} of step {}",
                         metrics::phase_names(s.phase).watchdog, s.step);
    case Verdict::Kind::silent:
    case Verdict::Kind::disconnected:
      return fmt::format("has not been heard for {:.0f} s: {}", rank.silent_s, why_silent(rank));
    default:
      if (starts(s.phase))
        return fmt::format("has been at {} for {:.0f} s without progress; its limit is {:.0f} s",
                           at_what(s), s.in_phase_s, s.limit_s);
      return fmt::format("has been in {} of step {} for {:.0f} s; its limit is {:.0f} s",
                         metrics::phase_names(s.phase).watchdog, s.step, s.in_phase_s, s.limit_s);
  }
}

}  // namespace

double patience_s(const RankHealth& rank, double silence_s) {
  constexpr double starved_s = 300, usual_lateness_s = 0.5, most_times = 6;
  if (rank.process == ProcessState::runs) return std::max(silence_s, starved_s);
  const bool seen = rank.process != ProcessState::unknown;
  if (seen || !rank.acknowledged || rank.late_s < usual_lateness_s) return silence_s;
  return silence_s * std::min(1 + rank.late_s, most_times);
}

std::optional<Verdict> judge(Views ranks, double silence_s, bool lenient) {
  const auto dead = those(ranks, has_ended);
  if (!dead.empty()) return Verdict{Verdict::Kind::dead, dead};
  if (lenient) return std::nullopt;
  for (const bool lost : {false, true}) {
    const auto silent = those(ranks, [=](const RankHealth& r) {
      return r.connected && r.lost == lost && r.silent_s > patience_s(r, silence_s);
    });
    if (!silent.empty())
      return Verdict{lost ? Verdict::Kind::disconnected : Verdict::Kind::silent, silent};
  }
  if (const auto verdict = stuck_at_work(ranks)) return verdict;
  return all_wait(ranks);
}

double limit_s(metrics::Phase phase, double median_step_s, double last_save_s) {
  // A stuck job has ended after 30 s or ten steps: this much earlier it is found to be.
  constexpr double to_end = 4, least = 30 - to_end, last_save = 30, start = 60, libraries = 900,
                   once = 900, evaluated_batch = 300;
  constexpr double first_gpu_step = 300, leaving = 60;
  const double steps = median_step_s == 0 ? once : std::max(least, 10 * median_step_s - to_end);
  switch (phase) {
    case metrics::Phase::init:  // a GPU's libraries may come from a cold network file system
      return libraries;
    case metrics::Phase::open:
    case metrics::Phase::list:
    case metrics::Phase::index:
    case metrics::Phase::plan:
    case metrics::Phase::resume:
      return start;
    case metrics::Phase::output:
      return once;
    case metrics::Phase::checkpoint:
      return last_save_s + last_save;
    case metrics::Phase::gpu:
      return median_step_s == 0 ? first_gpu_step : steps;
    case metrics::Phase::exit:
      return leaving;
    case metrics::Phase::evaluation:
      return std::max(evaluated_batch, steps);
    default:
      return steps;
  }
}

std::string long_wait(Views ranks, std::span<const std::string> hosts, double patience_s) {
  const auto waits = [=](const RankHealth& r) {
    return waiting(r) && r.status.in_phase_s > patience_s;
  };
  const auto at_work = those(ranks, [](const RankHealth& r) { return r.connected && !waiting(r); });
  if (those(ranks, waits).empty() || at_work.empty()) return "";
  const int last = furthest_behind(ranks, at_work).front();
  const RankStatus& s = ranks[static_cast<std::size_t>(last)].status;
  if (s.in_phase_s < patience_s) return "";
  return fmt::format(
      "{} has been in {} for {:.0f} s, and others wait for it; its limit is {:.0f} s",
      who(last, hosts), at_what(s), s.in_phase_s, s.limit_s);
}

std::string why_silent(const RankHealth& rank) {
  if (rank.process == ProcessState::stopped) return "its process is stopped";
  if (rank.process == ProcessState::frozen) return "its process is frozen by its control group";
  if (rank.lost)
    return fmt::format("connection lost and not made again{}",
                       rank.process == ProcessState::unknown
                           ? ", as the network refuses it or the process has ended"
                           : ", though the process lives");
  if (!rank.acknowledged) return "its host is down or the network is cut";
  return "it is stopped or gets no CPU, its host is down or the network is cut";
}

std::string describe(const Verdict& verdict, Views ranks, std::span<const std::string> hosts) {
  if (verdict.culprits.empty())
    return fmt::format(
        "all ranks have waited for one another in {} for {:.0f} s and none is to blame: the "
        "network between them, or a GPU, is stuck",
        metrics::phase_names(verdict.phase).watchdog, ranks.front().status.in_phase_s);
  std::vector<std::string> sentences;
  for (const int r : verdict.culprits)
    sentences.push_back(who(r, hosts) + " " + what_of(verdict, ranks[static_cast<std::size_t>(r)]));
  return fmt::format("{}", fmt::join(sentences, "; "));
}

std::string details(const Verdict& verdict, std::span<const std::string> hosts) {
  constexpr std::array how = {"dead", "silent", "disconnected", "stuck"};
  std::string text = key_value("how", how.at(static_cast<std::size_t>(verdict.kind)));
  if (verdict.culprits.empty()) return text;
  std::vector<std::string> names;
  for (const int r : verdict.culprits) names.push_back(hosts[static_cast<std::size_t>(r)]);
  return text + key_value("ranks", fmt::format("{}", fmt::join(verdict.culprits, ","))) +
         key_value("hosts", fmt::format("{}", fmt::join(names, ",")));
}

std::string table(Views ranks, std::span<const std::string> hosts) {
  std::string text = fmt::format("{:>6}  {:<20} {:>10}  {:<11} {:>9} {:>9}  {}\n", "rank", "host",
                                 "step", "phase", "seconds", "limit", "last heard");
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const RankHealth& rank = ranks[r];
    const RankStatus& status = rank.status;
    const std::string heard = rank.left                            ? "has left"
                              : rank.process == ProcessState::gone ? "has ended"
                              : !rank.connected                    ? "never"
                                                : fmt::format("{:.0f} s ago{}", rank.silent_s,
                                                              rank.lost ? ", connection lost" : "");
    text += fmt::format("{:>6}  {:<20} {:>10}  {:<11} {:>9.0f} {:>9.0f}  {}{}{}\n", r, hosts[r],
                        status.step, metrics::phase_names(status.phase).watchdog, status.in_phase_s,
                        status.limit_s, heard, status.item.empty() ? "" : "  at ", status.item);
  }
  return text;
}

}  // namespace ringtrain::monitor
