// The detector on the noise of real runs: test/data/pace has the steps of some, made by
// test/bench/record_pace.py.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "ringtrain/base/philox.hpp"
#include "ringtrain/monitor/slowdown/slowdown_detector.hpp"
#include "support/catch.hpp"

using namespace ringtrain;
using namespace ringtrain::monitor;

namespace {

using Change = SlowdownDetector::Change;

struct Step {
  double seconds = 0;
  bool saving = false;
};
using Minute = std::vector<Step>;

struct Recording {
  std::string name;
  std::vector<Minute> minutes;
};

Recording read(const std::filesystem::path& file) {
  Recording recording{file.stem().string(), {}};
  std::ifstream in(file);
  Minute minute;
  double seconds = 0;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with('#')) continue;
    minute.push_back({std::stod(line) / 1e3, line.ends_with('s')});
    seconds += minute.back().seconds;
    if (seconds < 60) continue;
    recording.minutes.push_back(std::move(minute));
    minute.clear();
    seconds = 0;
  }
  REQUIRE(recording.minutes.size() >= 30);
  return recording;
}

bool is_quiet(const Recording& recording) { return recording.name.starts_with("quiet"); }

std::vector<Recording> recordings() {
  std::vector<Recording> all;
  for (const auto& file : std::filesystem::directory_iterator(PACE_DATA))
    if (file.path().extension() == ".txt") all.push_back(read(file.path()));
  REQUIRE(std::ranges::any_of(all, is_quiet));
  std::ranges::sort(all, {}, &Recording::name);
  return all;
}

std::vector<Recording> quiet_recordings() {
  std::vector<Recording> all = recordings();
  std::erase_if(all, [](const Recording& recording) { return !is_quiet(recording); });
  return all;
}

/// The minutes of a recording in an order of their own, for as long as one likes.
class Resampled {
 public:
  Resampled(const Recording& recording, std::uint64_t seed)
      : minutes_(recording.minutes), random_(seed, Purpose::synthetic) {}

  /// Calls visit(step, seconds before it) until that returns false.
  template <class Visit>
  void run(const Visit& visit) {
    for (double now = 0;;)
      for (const Step& step :
           minutes_[random_.below(static_cast<std::uint32_t>(minutes_.size()))]) {
        if (!visit(step, now)) return;
        now += step.seconds;
      }
  }

 private:
  const std::vector<Minute>& minutes_;
  Philox random_;
};

int false_alarms(const Recording& recording, std::uint64_t seed, double seconds) {
  SlowdownDetector detector;
  int alarms = 0;
  Resampled(recording, seed).run([&](const Step& step, double now) {
    alarms += detector.step(step.seconds, step.saving) == Change::slower;
    return now < seconds;
  });
  return alarms;
}

bool stands(const std::map<SlowdownDetector::Reference, bool>& told) {
  return std::ranges::any_of(told, [](const auto& of_kind) { return of_kind.second; });
}

// Half an hour as recorded, then a fall to a third of the speed. Whether that is reported after it
// began and before it has been a quarter for a minute, and not taken back: what came suddenly on
// top of it has an end of its own.
bool told_in_time(const Recording& recording, std::uint64_t seed, double fall_s) {
  constexpr double before_s = 1800;
  SlowdownDetector detector;
  std::map<SlowdownDetector::Reference, bool> told;  // of each kind
  double fallen_s = 0, quarter_s = -1;
  Resampled(recording, seed).run([&](const Step& step, double now) {
    const double times = 1 + 2 * std::clamp((now + fallen_s - before_s) / fall_s, 0.0, 1.0);
    fallen_s += (times - 1) * step.seconds;
    if (times >= SlowdownDetector::tolerated && quarter_s < 0) quarter_s = now + fallen_s;
    const Change change = detector.step(times * step.seconds, step.saving);
    if (change == Change::slower) told[detector.reference()] = now + fallen_s >= before_s;
    if (change == Change::recovered) told[detector.reference()] = false;
    return quarter_s < 0 || (!stands(told) && now + fallen_s < quarter_s + 60);
  });
  return stands(told);
}

// Noise that is a slow-down itself hides others: beside other work it is only counted.
void check_falls(const std::vector<Recording>& recordings, double minutes, int seeds) {
  int told = 0, all = 0;
  for (const Recording& recording : recordings) {
    int of_these = 0;
    for (int seed = 0; seed < seeds; ++seed)
      of_these += told_in_time(recording, static_cast<std::uint64_t>(seed), 60 * minutes);
    std::cout << "a fall within " << minutes << " minutes on " << recording.name << ": " << of_these
              << " of " << seeds << " told in time\n";
    if (!is_quiet(recording)) continue;
    told += of_these;
    all += seeds;
  }
  REQUIRE(all > 0);
  CHECK(told >= 0.95 * all);
}

void check_alarms(const std::vector<Recording>& recordings) {
  for (const Recording& recording : recordings) {
    double alarms = 0;
    for (std::uint64_t seed = 0; seed < 10; ++seed)
      alarms += false_alarms(recording, seed, 86400) / 10.0;
    std::cout << "24 hours of " << recording.name << ": " << alarms << " reports\n";
    if (is_quiet(recording)) CHECK(alarms <= 1);
  }
}

}  // namespace

TEST_CASE("slow-downs: 30 falls of each length on quiet noise are told in time", "[.quiet]") {
  check_falls(quiet_recordings(), GENERATE(1.0, 5.0, 10.0, 15.0, 30.0, 60.0, 180.0, 720.0), 30);
}

TEST_CASE("slow-downs: 24 hours of a quiet machine's noise make at most one false alarm",
          "[.quiet]") {
  check_alarms(quiet_recordings());
}

TEST_CASE("slow-downs: how many falls on every noise are told in time", "[.long]") {
  check_falls(recordings(), GENERATE(1.0, 5.0, 10.0, 15.0, 30.0, 60.0, 180.0, 720.0), 30);
}

TEST_CASE("slow-downs: how many false alarms 24 hours of every noise make", "[.long]") {
  check_alarms(recordings());
}
