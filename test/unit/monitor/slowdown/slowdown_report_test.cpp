#include "ringtrain/monitor/slowdown/slowdown_report.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>

#include "support/catch.hpp"

using namespace ringtrain;
using namespace ringtrain::monitor;
using Catch::Contains;

namespace {

using Clock = SlowdownReporter::Clock;

// Of a day, local time.
Clock::time_point noon() {
  std::tm day{};
  day.tm_year = 126;
  day.tm_mday = 5;
  day.tm_hour = 12;
  day.tm_isdst = -1;
  return Clock::from_time_t(std::mktime(&day));
}

const std::vector<std::string> hosts_of_ranks = {"a", "a", "b", "b"};

// Four ranks on two hosts, whose steps are 6 ms forward, 3 ms backward and 1 ms of waiting for
// others, and what disturbs them.
class Job {
 public:
  Job() {
    for (int warm_up = 0; warm_up < 10; ++warm_up) slow_downs_.step(0.010, 64, false);
  }

  struct Disturbance {
    std::vector<std::size_t> ranks = {};
    metrics::Phase phase = metrics::Phase::forward;
    double extra_s = 0;                         // a step, in that phase: all others wait
    SystemMetric metric = SystemMetric::still;  // that moves on those ranks
    double a_second = 0;
    double preempted_a_second = 0;
  };

  /// Falls from `seconds` on: the disturbance grows from nothing.
  std::string fall(int seconds, Disturbance d) {
    const double most = d.extra_s, most_vital = d.a_second;
    std::string told;
    double now = 0;
    while (now < seconds) {
      d.extra_s = most * now / seconds;
      d.a_second = most_vital * now / seconds;
      told += step(d, false);
      now += 0.010 + d.extra_s;
    }
    return told;
  }
  std::string run(int seconds, const Disturbance& d, bool saving = false) {
    std::string told;
    for (int i = 0; i < std::lround(seconds / (0.010 + d.extra_s)); ++i) told += step(d, saving);
    return told;
  }
  /// Something else than steps, as an evaluation.
  void pause(int seconds) { now_ += std::chrono::seconds(seconds); }
  SlowdownReporter& reporter() { return slow_downs_; }
  /// Whether some report suspected links.
  bool links() const { return links_; }

 private:
  std::string step(const Disturbance& d, bool saving) {
    const double step_s = 0.010 + d.extra_s;
    for (std::size_t r = 0; r < accounts_.size(); ++r)
      account(accounts_[r], d, std::ranges::find(d.ranks, r) != d.ranks.end());
    now_ += std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(step_s));
    const auto report = slow_downs_.step(step_s, 64, saving);
    links_ = links_ || report.links;
    return report.text.empty() ? "" : report.what + ": " + report.text + "\n";
  }
  static void account(RankStats& rank, const Disturbance& d, bool disturbed) {
    ++rank.spent.steps;
    rank.spent.phases[metrics::Phase::forward] += 0.006;
    rank.spent.phases[metrics::Phase::backward] += 0.003;
    rank.spent.phases[metrics::Phase::communication] += 0.001;
    rank.spent.phases[disturbed ? d.phase : metrics::Phase::communication] += d.extra_s;
    rank.system.seconds += 0.010 + d.extra_s;
    if (disturbed) rank.system[d.metric] += d.a_second * (0.010 + d.extra_s);
    if (disturbed)
      rank.system[SystemMetric::preempted] += d.preempted_a_second * (0.010 + d.extra_s);
  }

  std::vector<RankStats> accounts_{4};
  bool links_ = false;
  Clock::time_point now_ = noon();
  SlowdownReporter slow_downs_{hosts_of_ranks, [this] { return accounts_; },
                               [this] { return now_; }};
};

}  // namespace

TEST_CASE("slow-downs: nothing is told while all is as usual") {
  Job job;
  CHECK(job.run(120, {}).empty());
}

TEST_CASE("slow-downs: one rank's work is named, with what moved on it, and so is the end") {
  Job job;
  job.run(30, {});
  const std::string told = job.run(20, {.ranks = {2},
                                        .phase = metrics::Phase::forward,
                                        .extra_s = 0.010,
                                        .metric = SystemMetric::still,
                                        .a_second = 0.5});
  CHECK(
      told ==
      "slow_down: 3200.0 examples/s for 5.0 s, 50 % less than the usual 6400.0; forward grew from "
      "6.0 to 16.0 ms a step on rank 2 (b); with it moved, on b: the process stood still 0 -> 50 "
      "% of the time; what to do: find what stops it: a debugger, a frozen container, or more "
      "busy threads than CPUs\n");
  CHECK_THAT(job.run(20, {}),
             Contains("slow_down_over: ") && Contains(" examples/s again, after 20 s"));
}

TEST_CASE("slow-downs: what grew, and where") {
  struct Case {
    Job::Disturbance disturbance;
    std::string told;
  };
  const auto [disturbance, expected] = GENERATE(values<Case>(
      {{{.ranks = {0, 1},
         .phase = metrics::Phase::backward,
         .extra_s = 0.01,
         .metric = SystemMetric::others,
         .a_second = 1},
        "backward grew from 3.0 to 13.0 ms a step on rank 0 (a), rank 1 (a); with it moved, on a: "
        "CPUs used by other processes 0 -> 1 of the host's"},
       {{.ranks = {0, 1, 2, 3},
         .phase = metrics::Phase::data_wait,
         .extra_s = 0.02,
         .metric = SystemMetric::disk_waits,
         .a_second = 0.5},
        "data wait grew from 0.0 to 20.0 ms a step on all ranks; with it moved, on a: CPUs waiting "
        "for disks 0 -> 0.5 of the host's"},
       {{.ranks = {3},
         .phase = metrics::Phase::communication,
         .extra_s = 0.04,
         .metric = SystemMetric::retransmitted,
         .a_second = 30},
        "exposed communication grew from 1.0 to 41.0 ms a step on all ranks, and no rank's own "
        "work "
        "did; with it moved, on b: TCP segments sent again 0 -> 30 a second"},
       {{.ranks = {2},
         .phase = metrics::Phase::communication,
         .extra_s = 0.04,
         .metric = SystemMetric::sending,
         .a_second = 0.9},
        "on all ranks, and no rank's own work did; b sends 90 % of the time, others 0 %: they wait "
        "for its link; ruled out, none of them moved: stopped or unscheduled"},
       {{.ranks = {2},
         .phase = metrics::Phase::communication,
         .extra_s = 0.04,
         .metric = SystemMetric::sending,
         .a_second = 0.9,
         .preempted_a_second = 2000},
        "they wait for its link; ruled out, none of them moved: stopped or unscheduled processes, "
        "CPU quotas, stolen CPU time, other processes, waits for disks, paging, lost packets, "
        "round trips; what to do: see what else uses its link"},
       {{.ranks = {2},
         .phase = metrics::Phase::communication,
         .extra_s = 0.04,
         .metric = SystemMetric::others,
         .a_second = 1,
         .preempted_a_second = 2000},
        "and no rank's own work did; with it moved, on b: CPUs used by other processes 0 -> 1 of "
        "the host's, times preempted 0 -> 2000 a second; what to do: end what else wants its"},
       {{.ranks = {1, 2},
         .phase = metrics::Phase::communication,
         .extra_s = 0.04,
         .metric = SystemMetric::sending,
         .a_second = 0.9},
        "and no rank's own work did; ruled out, none of them moved: stopped or unscheduled"},
       {{.ranks = {1},
         .phase = metrics::Phase::communication,
         .extra_s = 0.01,
         .metric = SystemMetric::still,
         .a_second = 0.5},
        "on rank 1 (a); with it moved, on a: the process stood still"},
       {{.ranks = {0}, .phase = metrics::Phase::other, .extra_s = 0.01},
        "other grew from 0.0 to 10.0 ms a step on rank 0 (a); ruled out, none of them moved: "
        "stopped or unscheduled"}}));
  Job job;
  job.run(30, {});
  CHECK_THAT(job.run(10, disturbance), Contains(expected));
}

TEST_CASE("slow-downs: links are suspected where all wait and no rank's own work grew") {
  const bool waits = GENERATE(true, false);
  Job job;
  job.run(30, {});
  job.run(10, {.ranks = {2},
               .phase = waits ? metrics::Phase::communication : metrics::Phase::backward,
               .extra_s = 0.02});
  CHECK(job.links() == waits);
}

// As ranks that wait take CPU from the work of others.
TEST_CASE("slow-downs: before a slow link, own work that grew less is not the cause") {
  const bool waits_most = GENERATE(true, false);
  std::vector<RankStats> accounts(4);
  SlowdownReporter reporter(hosts_of_ranks, [&] { return accounts; });
  std::string told;
  bool links = false;
  for (int step = 0; step < 4000; ++step) {
    const bool slow = step >= 2000;
    const double own_s = slow ? (waits_most ? 0.009 : 0.013) : 0.005, step_s = slow ? 0.02 : 0.01;
    for (std::size_t r = 0; r < accounts.size(); ++r) {
      RankStats& rank = accounts[r];
      ++rank.spent.steps;
      rank.spent.phases[metrics::Phase::backward] += own_s;
      rank.spent.phases[metrics::Phase::communication] += step_s - own_s;
      rank.system.seconds += step_s;
      if (slow && hosts_of_ranks[r] == "b") rank.system[SystemMetric::sending] += 0.8 * step_s;
    }
    const auto report = reporter.step(step_s, 64, false);
    told += report.text;
    links = links || report.links;
  }
  CHECK(links == waits_most);
  CHECK_THAT(
      told,
      Contains(waits_most ? "exposed communication grew from 5.0 to 11.0 ms a step on all ranks, "
                            "more than any rank's own work; b sends 80 % of the time"
                          : "backward grew from 5.0 to 13.0 ms a step on all ranks; "));
}

TEST_CASE("slow-downs: on one host no link is suspected") {
  std::vector<RankStats> accounts(2);
  SlowdownReporter reporter({"a", "a"}, [&] { return accounts; });
  std::string told;
  for (int step = 0; step < 4000; ++step) {
    const double step_s = step < 2000 ? 0.01 : 0.02;
    for (RankStats& rank : accounts) {
      ++rank.spent.steps;
      rank.spent.phases[metrics::Phase::communication] += step_s;
      rank.system.seconds += step_s;
    }
    const auto report = reporter.step(step_s, 64, false);
    told += report.text;
    CHECK_FALSE(report.links);
  }
  CHECK_THAT(told, Contains("exposed communication grew"));
}

TEST_CASE("slow-downs: links are compared with how they were at the start") {
  LinkSpeeds links{.hosts = {"a", "b", "c"},
                   .start = {118e6, 117e6, 118e6},
                   .now = {116e6, 119e6, 110e6},
                   .step_bytes = 4.4e6,
                   .step_s = 0.1};
  CHECK(compare_links(links) ==
        "no link between hosts explains it: the slowest, from c to a, carries 110 MB/s, 118 at the "
        "start, and so a step's sums in 40.0 of 100.0 ms; what to do: look at the links between "
        "the hosts (ethtool, ethtool -S); --timeline shows who waits for whom");
  links.now[2] = 29.84e6;
  CHECK(compare_links(links) ==
        "from c to a 29.8 MB/s, 118 at the start; 2 of 3 hold up no step; what to do: see what "
        "else c sends and a receives, and look at their network cards, cables and switch ports "
        "(ethtool, ethtool -S)");
}

TEST_CASE("slow-downs: which links are named") {
  LinkSpeeds links{.hosts = {"a", "b"}, .start = {1e8, 1e8}, .step_bytes = 1e6, .step_s = 0.1};
  const auto text = [&](double a_to_b, double b_to_a) {
    links.now = {a_to_b, b_to_a};
    return compare_links(links);
  };
  CHECK_THAT(text(86e6, 100e6), Catch::StartsWith("no link "));
  CHECK_THAT(text(84e6, 100e6), Catch::StartsWith("from a to b 84 MB/s, 100 at the start; 1 of 2"));
  CHECK_THAT(text(2e6, 1e6), Catch::StartsWith("from b to a 1 MB/s, 100 at the start; from a to b "
                                               "2 MB/s, 100 at the start; what to do: "));
  links.step_bytes = 1e5;  // in 2 of 100 ms
  CHECK_THAT(text(50e6, 100e6), Catch::StartsWith("no link "));
  links = {std::vector<std::string>(9, "a"), std::vector<double>(9, 1e9),
           std::vector<double>(9, 1e6), 1e6, 0.1};
  CHECK_THAT(compare_links(links), Contains("; 6 more; what to do: "));
}

TEST_CASE("slow-downs: a save alone is none") {
  Job job;
  job.run(30, {});
  CHECK(job.run(25, {.ranks = {0}, .extra_s = 0.01}, true).empty());
  CHECK(job.run(30, {}).empty());
  CHECK_THAT(job.run(60, {.ranks = {0}, .extra_s = 0.01}, true),
             Contains("; a save is in flight; "));
}

TEST_CASE("slow-downs: where ranks tell nothing, the fall is told all the same") {
  SlowdownReporter slow_downs({"a"}, [] { return std::vector<RankStats>(); });
  std::string told;
  for (int step = 0; step < 2000; ++step)
    told += slow_downs.step(step < 1000 ? 0.01 : 0.02, 64, false).text;
  CHECK_THAT(told, Contains("50 % less") && Contains("what grew is not known"));
}

TEST_CASE("slow-downs: what comes slowly is compared with the best time, since when it fell") {
  Job job;
  job.run(600, {});
  const std::string told = job.fall(7200, {.ranks = {1},
                                           .phase = metrics::Phase::backward,
                                           .extra_s = 0.010,
                                           .metric = SystemMetric::throttled,
                                           .a_second = 0.6});
  CHECK_THAT(
      told,
      Catch::Matches("slow_down: 5[0-9]+[.][0-9] examples/s for 30 s, 1[678] % less than the "
                     "6400.0 of 12:0[0-9] to 12:[01][0-9]; falling since 12:2[0-9]; backward grew "
                     "from 3.0 to 5.[0-9] ms a step on rank 1 \\(a\\); with it moved, on a: "
                     "held up by its CPU quota 0 -> 1[0-9.]+ % of the time; what to do: "
                     "raise the CPU limit[^\n]*\n(slow_down: [^\n]*\n)+"));
}

TEST_CASE("slow-downs: the cause of a sudden one may have begun before it") {
  Job job;
  Job::Disturbance busy{
      .ranks = {2}, .extra_s = 0.002, .metric = SystemMetric::others, .a_second = 0.7};
  job.run(150, {});
  REQUIRE(job.run(240, busy).empty());
  busy.extra_s = 0.006;
  busy.a_second = 0.9;
  CHECK_THAT(job.run(10, busy),
             Contains("less than the usual 5333.3; since the best time, 12:00 to 12:02, forward "
                      "grew from 6.0 to 1") &&
                 Contains("CPUs used by other processes 0 -> 0.8"));
}

TEST_CASE("slow-downs: what stays slow is said once") {
  Job job;
  job.run(600, {});
  const Job::Disturbance slow{.ranks = {1}, .phase = metrics::Phase::backward, .extra_s = 0.005};
  const std::string told = job.run(7200, slow);
  CHECK_THAT(told, Catch::Matches("slow_down: [^\n]*\nslow_down_stays: 4266.7 examples/s since "
                                  "12:10: what comes is compared with that from now on; before, "
                                  "it was 6400.0\n"));
  CHECK_THAT(job.run(300, {}), Contains("slow_down_over: 6400.0 examples/s again, after 2 h"));
}

TEST_CASE("slow-downs: a run is compared with what was expected of it") {
  Job job;
  job.reporter().expect({.step_s = 0.010, .source = "the run of 2026-01-04 12:00 reached"});
  const std::string told = job.run(300, {.ranks = {0, 1, 2, 3}, .extra_s = 0.005});
  CHECK_THAT(told,
             Contains("33 % less than the 6400.0 that the run of 2026-01-04 12:00 reached; on "
                      "rank 0 (a), forward takes 11.0 ms of 15.0 ms a step; what to do: "));
  REQUIRE(job.reporter().best());
  CHECK(job.reporter().best()->step_s == Approx(0.015));
  CHECK(job.reporter().best()->phases[metrics::Phase::forward] == Approx(0.011));

  CHECK_FALSE(job.reporter().has_settled());
  CHECK_THAT(job.run(3500, {.ranks = {0, 1, 2, 3}, .extra_s = 0.005}),
             Contains("4266.7 examples/s since ") &&
                 Contains(": later runs are compared with that, not with the 6400.0 that the run "
                          "of 2026-01-04 12:00 reached"));
  CHECK(job.reporter().has_settled());

  metrics::PhaseSeconds then;
  then[metrics::Phase::forward] = 0.010;
  then[metrics::Phase::backward] = 0.0005;
  Job other;
  other.reporter().expect({.step_s = 0.010, .source = "that run had", .phases = then});
  CHECK_THAT(other.run(300, {.ranks = {0, 1, 2, 3}, .extra_s = 0.005}),
             Contains("; on rank 0 (a), backward takes 3.0 ms of 15.0 ms a step, 0.5 ms then; "));
  Job uneven;
  uneven.reporter().expect({.step_s = 0.010, .source = "that run had"});
  CHECK_THAT(uneven.run(300, {.ranks = {3}, .phase = metrics::Phase::data_wait, .extra_s = 0.008}),
             Contains("; rank 3 (b) holds up the others: data wait takes 8.0 ms a step, median "
                      "0.0; what to do: look at the storage of --data"));
}

TEST_CASE("slow-downs: what comes and goes is said so, and in the end how often it came") {
  Job job;
  job.run(60, {});
  const Job::Disturbance slow{.ranks = {1}, .phase = metrics::Phase::backward, .extra_s = 0.010};
  std::string told;
  for (int i = 0; i < 5; ++i) {
    told += job.run(60, slow);
    told += job.run(60, {});
  }
  CHECK_THAT(told, Catch::Matches("slow_down: [^\n]*\nslow_down_over: [^\n]*\nslow_down: "
                                  "[^\n]*\nslow_down_over: [^\n]*\nslow_down: [^\n]*; it comes "
                                  "and goes, 3 times since 12:01: until there was none for 10 min, "
                                  "only what is a quarter worse, or lasts for 5 min, is "
                                  "reported\n"));
  CHECK_THAT(job.run(660, {}),
             Catch::Matches("slow_down_over: 6400.0 examples/s again; since 12:01, it was slower 5 "
                            "times, 4 min [0-9]+ s in all\n"));
}

TEST_CASE("slow-downs: stalls are counted") {
  Job job;
  job.run(300, {});
  std::string told;
  for (int i = 0; i < 12; ++i) {
    told += job.run(7, {.ranks = {2}, .phase = metrics::Phase::data_wait, .extra_s = 6.99});
    told += job.run(13, {});
  }
  CHECK_THAT(
      told,
      Catch::Matches("slow_down: [0-9.]+ examples/s for 60 s, [0-9]+ % less than "
                     "the best 6400.0; [3-6] stalls took [0-9.]+ s of the last [^,]+, other steps "
                     "are fast; data wait grew from 0.0 to [0-9.]+ ms a step on rank "
                     "2 \\(b\\); ruled out[^\n]*\n"));
}

TEST_CASE("slow-downs: the time since when counts what was between steps, too") {
  Job job;
  job.run(600, {});
  job.pause(600);
  const std::string told = job.run(4000, {.ranks = {1}, .extra_s = 0.005});
  CHECK_THAT(told, Contains("slow_down_stays: 4266.7 examples/s since 12:20: "));
}
