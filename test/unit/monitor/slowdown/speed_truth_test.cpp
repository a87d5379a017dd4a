// What is said of a run against what is true of its speed (support/speed_truth.hpp), on real noise:
// test/data/pace has the steps of some runs, made by test/bench/record_pace.py.
#include "support/speed_truth.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "ringtrain/base/philox.hpp"
#include "ringtrain/monitor/slowdown/speed_rule.hpp"
#include "support/catch.hpp"

using namespace ringtrain;
using monitor::SpeedRule;

namespace {

using Steps = std::vector<double>;  // seconds

struct Recording {
  std::string name;
  Steps steps;
};

std::vector<Recording> recordings() {
  std::vector<Recording> all;
  for (const auto& file : std::filesystem::directory_iterator(PACE_DATA)) {
    if (file.path().extension() != ".txt") continue;
    Recording& recording = all.emplace_back(Recording{file.path().stem().string(), {}});
    std::ifstream in(file.path());
    for (std::string line; std::getline(in, line);)
      if (!line.starts_with('#')) recording.steps.push_back(std::stod(line) / 1e3);
  }
  REQUIRE(all.size() >= 7);
  std::ranges::sort(all, {}, &Recording::name);
  return all;
}

// The minutes of a recording in an order of their own, for a day.
Steps day_of(const Recording& recording, std::uint64_t seed) {
  std::vector<Steps> minutes(1);
  double minute_s = 0;
  for (const double step : recording.steps) {
    minutes.back().push_back(step);
    if ((minute_s += step) < 60) continue;
    minutes.emplace_back();
    minute_s = 0;
  }
  minutes.pop_back();
  Philox random(seed, Purpose::synthetic);
  Steps day;
  for (double now = 0; now < 86400;)
    for (const double step : minutes[random.below(static_cast<std::uint32_t>(minutes.size()))]) {
      day.push_back(step);
      now += step;
    }
  return day;
}

// A fall at any time, to any depth, within no time or up to twelve hours, maybe a second one in it,
// or by stalls. It is over in the end.
Steps with_fall(const Recording& recording, std::uint64_t seed) {
  Philox random(seed, Purpose::synthetic);
  constexpr std::array slopes_s = {0.0, 0.0, 5.0, 30.0, 60.0, 300.0, 900.0, 3600.0};
  const double slope_s = seed % 16 == 15 ? 43200 : slopes_s[random.below(slopes_s.size())];
  const double begin_s = random.uniform(120, 1500), depth = random.uniform(0.3F, 0.8F);
  const double steep_end_s = begin_s + slope_s, end_s = steep_end_s + random.uniform(120, 1200);
  const bool stalls = random.below(3) == 0, twice = !stalls && random.below(2) == 0;
  const double second = twice ? random.uniform(0.3F, 0.8F) : 1, stall_s = random.uniform(2, 25);
  auto next = random.below(static_cast<std::uint32_t>(recording.steps.size()));
  Steps steps;
  double stalled_s = begin_s;
  for (double now = 0; now < end_s + 900; now += steps.back()) {
    const double step = recording.steps[next++ % recording.steps.size()];
    double share = 1;
    if (now >= begin_s && now < end_s && !stalls) {
      share -= (1 - depth) * (slope_s > 0 ? std::min(1.0, (now - begin_s) / slope_s) : 1);
      if (now > (steep_end_s + end_s) / 2) share *= second;
    }
    const bool stands = stalls && now >= begin_s && now < end_s && now >= stalled_s;
    if (stands) stalled_s = now + stall_s / (1 - depth);
    steps.push_back(stands ? stall_s : step / share);
  }
  return steps;
}

struct Count {
  int episodes = 0, told = 0;
  int standing = 0;  ///< of these: by no line of their own, but while a slow-down was told
  int lines = 0, false_lines = 0;
  Count& operator+=(const Count& more) {
    episodes += more.episodes;
    told += more.told;
    standing += more.standing;
    lines += more.lines;
    false_lines += more.false_lines;
    return *this;
  }
};

/// What the rule had said by some moment.
struct Said {
  double at_s = 0;
  bool slow = false, line = false;
  double compared_share = 1;
};

bool knows(const Said& said, const truth::Episode& episode) {
  // the rule and the truth have references of their own, which differ by some percent
  return said.slow && (!episode.within || 0.8 * said.compared_share <= 1.05 * episode.share);
}

// `name` says where the steps are from, for what is to be shown.
Count compare(const Steps& steps, const std::string& name) {
  const truth::Speed truth(steps);
  SpeedRule rule(0.8);
  std::vector<Said> said;
  Count count;
  double now = 0;
  for (const double step : steps) {
    now += step;
    const auto change = rule.step(step, 1);
    if (said.empty() || now >= said.back().at_s + 1 || change != SpeedRule::Change::none)
      said.push_back({now, rule.slow(),
                      change == SpeedRule::Change::told || change == SpeedRule::Change::again,
                      rule.compared_share()});
    if (change == SpeedRule::Change::none) continue;
    ++count.lines;
    if (change == SpeedRule::Change::ended) continue;
    // a block more, as the truth knows its reference by blocks
    const double least = truth.least_share(now - 120, now + truth::block_s);
    if (least < 0.85) continue;
    ++count.false_lines;
    std::cout << name << ": told at " << now << " s, where the least 30 s are " << least << '\n';
  }
  for (const truth::Episode& episode : truth.episodes()) {
    const double due_s = episode.seen_s + 60;
    if (due_s > truth.seconds()) continue;
    ++count.episodes;
    const auto first = std::ranges::lower_bound(said, episode.begin_s, {}, &Said::at_s);
    const auto last = std::ranges::upper_bound(said, due_s + 1, {}, &Said::at_s);
    if (std::any_of(first, last, [&](const Said& one) { return knows(one, episode); })) {
      ++count.told;
      count.standing += std::none_of(first, last, [](const Said& one) { return one.line; });
      continue;
    }
    std::cout << name << ": " << (episode.within ? "a fall within a fall" : "a fall") << " to "
              << episode.share << " at " << episode.begin_s << " s was not told in time\n";
  }
  return count;
}

void check(const Count& count) {
  CHECK(count.told >= 0.95 * count.episodes);
  CHECK(count.false_lines == 0);
}

void check_all(std::uint64_t days, std::uint64_t falls) {
  for (const Recording& recording : recordings()) {
    CAPTURE(recording.name);
    const Count as_it_is = compare(recording.steps, recording.name);
    check(as_it_is);
    CHECK(as_it_is.lines <= 10);
    Count of_days, of_falls;
    int most = 0;
    for (std::uint64_t seed = 0; seed < days; ++seed) {
      const Count day = compare(day_of(recording, seed),
                                recording.name + ", day of seed " + std::to_string(seed));
      most = std::max(most, day.lines);
      of_days += day;
    }
    check(of_days);
    CHECK(most <= 10);
    for (std::uint64_t seed = 0; seed < falls; ++seed)
      of_falls += compare(with_fall(recording, seed),
                          recording.name + ", fall of seed " + std::to_string(seed));
    check(of_falls);
    const auto told = [](const Count& count) {
      return std::to_string(count.told) + " of " + std::to_string(count.episodes) + " (" +
             std::to_string(count.standing) + " within what was told)";
    };
    std::cout << recording.name << ": " << as_it_is.lines << " lines, episodes told "
              << told(as_it_is) << " | " << days
              << " days: " << double(of_days.lines) / double(days) << " lines a day, at most "
              << most << "; " << told(of_days) << " | " << falls << " falls: " << told(of_falls)
              << '\n';
  }
}

}  // namespace

TEST_CASE("slow-downs: on recorded noise, with falls and without, what is told is true") {
  check_all(1, 12);
}

TEST_CASE("slow-downs: the same for many days and falls", "[.long]") { check_all(20, 200); }
