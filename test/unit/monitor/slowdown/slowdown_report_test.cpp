#include "ringtrain/monitor/slowdown/slowdown_report.hpp"

#include <algorithm>
#include <cmath>

#include "monitor/slowdown/slowdown_cause.hpp"
#include "support/allocations.hpp"
#include "support/catch.hpp"

using namespace ringtrain;
using namespace ringtrain::monitor;
using Catch::Contains;
using Catch::Matches;

namespace {

const std::vector<std::string> hosts_of_ranks = {"a", "a", "b", "b"};

// Four ranks on two hosts, whose steps are 6 ms forward, 3 ms backward and 1 ms of waiting for
// others, and what disturbs them.
class Job {
 public:
  explicit Job(std::vector<std::string> hosts = hosts_of_ranks) : hosts_(std::move(hosts)) {}

  struct Disturbance {
    std::vector<std::size_t> ranks = {};
    metrics::Phase phase = metrics::Phase::forward;
    double extra_s = 0;                         // a step, in that phase: all others wait
    SystemMetric metric = SystemMetric::still;  // that moves on those ranks
    double a_second = 0;
    double preempted_a_second = 0;
    double saving_s = 0;  // of a step
  };

  std::string run(double seconds, const Disturbance& d) {
    std::string told;
    for (int i = 0; i < std::lround(seconds / (0.010 + d.extra_s)); ++i) told += step(d);
    return told;
  }
  SlowdownReporter& reporter() { return slow_downs_; }
  /// Whether some report suspected links.
  bool links() const { return links_; }

 private:
  std::string step(const Disturbance& d) {
    const double step_s = 0.010 + d.extra_s;
    for (std::size_t r = 0; r < accounts_.size(); ++r) {
      account(accounts_[r], d, std::ranges::find(d.ranks, r) != d.ranks.end());
      // The ranks of a host see each other work.
      const auto ranks_here = std::ranges::count(hosts_, hosts_[r]);
      accounts_[r].system[SystemMetric::own_cpu] += 0.009;
      accounts_[r].system[SystemMetric::others] += 0.009 * double(ranks_here - 1);
    }
    const auto report = slow_downs_.step(step_s, 64, d.saving_s);
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

  const std::vector<std::string> hosts_;
  std::vector<RankStats> accounts_{hosts_.size()};
  bool links_ = false;
  SlowdownReporter slow_downs_{0.8, hosts_, [this](auto& of_ranks) { of_ranks = accounts_; }};
};

}  // namespace

TEST_CASE("slow-downs: one rank's work is named, with what moved on it, and so is the end") {
  Job job;
  REQUIRE(job.run(120, {}).empty());
  const std::string told = job.run(60, {.ranks = {2},
                                        .phase = metrics::Phase::forward,
                                        .extra_s = 0.010,
                                        .metric = SystemMetric::still,
                                        .a_second = 0.5});
  CHECK_THAT(
      told,
      Matches("slow_down: 32[0-9][0-9][.][0-9] examples/s for 1[0-9] s, (49|50) % less than the "
              "usual 6400.0; forward grew from 6.0 to 1[56].[0-9] ms a step on rank 2 \\(b\\), "
              "own work explains 100 % of the loss; with it moved, on b: the process "
              "stood still 0 -> [45][0-9.]* % of the time; what to do: find what stops it: a "
              "debugger, a frozen container, or more busy threads than CPUs\n"));
  REQUIRE(job.reporter().speed());
  CHECK(job.reporter().speed()->share == Approx(0.5).epsilon(0.02));
  CHECK(job.reporter().speed()->slow);
  CHECK_THAT(job.run(400, {}),
             Matches("slow_down_over: 6400.0 examples/s again; (59|60|61) s at 50 % of 6,400 "
                     "examples/s, cost (29|30|31) s\n"));
  CHECK_FALSE(job.reporter().speed()->slow);
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
        "on rank 0 (a), rank 1 (a), own work explains 100 % of the loss; with it moved, on a: CPUs "
        "used by other processes "},
       {{.ranks = {0},
         .phase = metrics::Phase::backward,
         .extra_s = 0.01,
         .metric = SystemMetric::others,
         .a_second = 0.5},
        "on rank 0 (a), own work explains 100 % of the loss; with it moved, on a: CPUs used by "
        "other processes "},
       {{.ranks = {0, 1, 2, 3},
         .phase = metrics::Phase::data_wait,
         .extra_s = 0.02,
         .metric = SystemMetric::disk_waits,
         .a_second = 0.5},
        "ms a step on all ranks, own work explains 100 % of the loss; with it moved, on a: CPUs "
        "waiting for disks 0 -> 0."},
       {{.ranks = {3},
         .phase = metrics::Phase::communication,
         .extra_s = 0.04,
         .metric = SystemMetric::retransmitted,
         .a_second = 30},
        "on all ranks, and no rank's own work did; with it moved, on b: TCP segments sent again"},
       {{.ranks = {2},
         .phase = metrics::Phase::communication,
         .extra_s = 0.04,
         .metric = SystemMetric::sending,
         .a_second = 0.9,
         .preempted_a_second = 2000},
        "%: they wait for its link; ruled out, none of them moved: stopped or unscheduled "
        "processes, CPU quotas, stolen CPU time, other processes, waits for disks, paging, lost "
        "packets, round trips; what to do: see what else uses its link"},
       {{.ranks = {2},
         .phase = metrics::Phase::communication,
         .extra_s = 0.04,
         .metric = SystemMetric::others,
         .a_second = 1,
         .preempted_a_second = 2000},
        "; cause unknown: no rank's own work explains half of it | exposed communication | rank 0 "
        "(a) | 1.0 -> "},
       {{.ranks = {1, 2},
         .phase = metrics::Phase::communication,
         .extra_s = 0.04,
         .metric = SystemMetric::sending,
         .a_second = 0.9},
        " ms |; ruled out, none of them moved: stopped or unscheduled"},
       {{.ranks = {1},
         .phase = metrics::Phase::communication,
         .extra_s = 0.01,
         .metric = SystemMetric::still,
         .a_second = 0.5},
        "waiting grew on rank 1 (a), standing still in it explains 100 % of the loss; with it "
        "moved, "
        "on a: the process stood"},
       {{.ranks = {0}, .phase = metrics::Phase::other, .extra_s = 0.01},
        "ms a step on rank 0 (a), own work explains 100 % of the loss; ruled out, none of them"}}));
  Job job;
  job.run(120, {});
  CHECK_THAT(job.run(40, disturbance), Contains(expected));
}

TEST_CASE(
    "slow-downs: links are suspected where all wait, on several hosts, and no rank's own work "
    "grew") {
  const bool waits = GENERATE(true, false), several = GENERATE(true, false);
  Job job(several ? hosts_of_ranks : std::vector<std::string>(4, "a"));
  job.run(120, {});
  CHECK_THAT(job.run(40, {.ranks = {2},
                          .phase = waits ? metrics::Phase::communication : metrics::Phase::backward,
                          .extra_s = 0.02}),
             Contains(waits ? "cause unknown" : "backward grew"));
  CHECK(job.links() == (waits && several));
}

// As ranks that wait take CPU from the work of others.
TEST_CASE(
    "slow-downs: before a slow link, own work that grew by less than half of it is not the cause") {
  const bool waits_most = GENERATE(true, false);
  std::vector<RankStats> accounts(4);
  SlowdownReporter reporter(0.8, hosts_of_ranks, [&](auto& of_ranks) { of_ranks = accounts; });
  std::string told;
  for (int step = 0; step < 12000; ++step) {
    const bool slow = step >= 10000;
    const double own_s = slow ? (waits_most ? 0.009 : 0.013) : 0.005, step_s = slow ? 0.02 : 0.01;
    for (std::size_t r = 0; r < accounts.size(); ++r) {
      RankStats& rank = accounts[r];
      ++rank.spent.steps;
      rank.spent.phases[metrics::Phase::backward] += own_s;
      rank.spent.phases[metrics::Phase::communication] += step_s - own_s;
      rank.system.seconds += step_s;
      if (slow && hosts_of_ranks[r] == "b") rank.system[SystemMetric::sending] += 0.8 * step_s;
    }
    told += reporter.step(step_s, 64, 0).text;
  }
  CHECK_THAT(told,
             Contains(waits_most ? "on all ranks, and no rank's own work did; b sends "
                                 : "ms a step on all ranks, own work explains 80 % of the loss"));
}

TEST_CASE("slow-downs: what steps wait for a save does not count") {
  Job job;
  job.run(120, {});
  CHECK(
      job.run(
             60,
             {.ranks = {0}, .phase = metrics::Phase::checkpoint, .extra_s = 0.02, .saving_s = 0.02})
          .empty());
}

TEST_CASE("slow-downs: where ranks tell nothing, the fall is told all the same") {
  SlowdownReporter slow_downs(0.8, {"a"}, [](auto&) {});
  std::string told;
  for (int step = 0; step < 12000; ++step)
    told += slow_downs.step(step < 10000 ? 0.01 : 0.02, 64, 0).text;
  CHECK_THAT(told,
             Contains(" % less than the usual 6400.0; cause unknown: the ranks have not told"));
}

TEST_CASE("slow-downs: a further fall is told with its own cause") {
  Job job;
  job.run(120, {});
  job.run(120, {.ranks = {1}, .phase = metrics::Phase::backward, .extra_s = 0.005});
  CHECK_THAT(
      job.run(100, {.ranks = {3}, .phase = metrics::Phase::data_wait, .extra_s = 0.015}),
      Matches("slow_down: .* than the usual 6400.0, a further fall; data wait grew from "
              "0.0 to 15.0 ms a step on rank 3 \\(b\\), .*look at the storage of --data.*\n"));
}

TEST_CASE("slow-downs: the first speed is compared with what was expected, once") {
  Job job;
  metrics::PhaseSeconds then;
  then[metrics::Phase::forward] = 0.010;
  then[metrics::Phase::backward] = 0.0005;
  const bool known = GENERATE(true, false);
  job.reporter().expect({.step_s = 0.010,
                         .source = "the run of 2026-01-04 12:00 reached",
                         .phases = known ? then : metrics::PhaseSeconds()});
  const Job::Disturbance slow{.ranks = {0, 1, 2, 3}, .extra_s = 0.005};
  const std::string told = job.run(3000, slow);
  CHECK_THAT(told,
             Matches("slow_down: 4266.7 examples/s, 33 % less than the 6400.0 that the run of "
                     "2026-01-04 12:00 reached; on rank 0 \\(a\\), .* of 15.0 ms a step.*\n"));
  CHECK_THAT(told,
             Contains(known ? "backward takes 3.0 ms of 15.0 ms a step, 0.5 ms then; what to do: "
                            : "forward takes 11.0 ms of 15.0 ms a step; what to do: "));
  REQUIRE(job.reporter().reached());
  CHECK(job.reporter().reached()->examples_per_second == Approx(64 / 0.015));
  CHECK(job.reporter().reached()->phases[metrics::Phase::forward] == Approx(0.011));
  CHECK_FALSE(job.reporter().stays_slower());

  CHECK_THAT(job.run(700, slow),
             Matches("slow_down_stays: 4266.7 examples/s for 1 h 0 min: later runs are "
                     "compared with that, not with the 6400.0 that the run of "
                     "2026-01-04 12:00 reached\n"));
  CHECK(job.reporter().stays_slower());
}

TEST_CASE("slow-downs: a run that is as fast as expected tells nothing") {
  Job job;
  job.reporter().expect({.step_s = 0.009, .source = "that run had"});
  CHECK(job.run(4000, {}).empty());
  CHECK_FALSE(job.reporter().stays_slower());
}

TEST_CASE("slow-downs: judging a step allocates nothing") {
  Job job;
  job.run(120, {});
  const std::size_t before = allocations();
  std::size_t told = 0;
  for (int step = 0; step < 20000; ++step) told += job.reporter().step(0.010, 64, 0).text.size();
  CHECK(allocations() == before);
  CHECK(told == 0);
}

TEST_CASE("slow-downs: where no rank's steps take longer, none is blamed") {
  RankStats usual, now;
  usual.spent.steps = now.spent.steps = 10;
  usual.spent.phases[metrics::Phase::forward] = 0.10;
  now.spent.phases[metrics::Phase::forward] = 0.09;
  usual.system.seconds = now.system.seconds = 1;

  CHECK_THAT(explain_slowdown({&usual, 1}, {&now, 1}, {"a"}).text, Contains("cause unknown"));
}
