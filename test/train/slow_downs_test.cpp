#include "train/slow_downs.hpp"

#include <algorithm>
#include <cmath>

#include "support/catch.hpp"

using namespace ringtrain;
using Catch::Contains;

namespace {

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
    Phase phase = Phase::forward;
    double extra_s = 0;          // a step, in that phase: all others wait
    Vital vital = Vital::still;  // that moves on those ranks
    double a_second = 0;
  };

  std::string run(int seconds, const Disturbance& d, bool saving = false) {
    const double step = 0.010 + d.extra_s;
    std::string told;
    for (int i = 0; i < std::lround(seconds / step); ++i) {
      for (std::size_t r = 0; r < accounts_.size(); ++r)
        account(accounts_[r], d, std::ranges::find(d.ranks, r) != d.ranks.end());
      const auto news = slow_downs_.step(step, 64, saving);
      if (!news.text.empty()) told += news.what + ": " + news.text + "\n";
    }
    return told;
  }

 private:
  static void account(Account& rank, const Disturbance& d, bool disturbed) {
    ++rank.spent.steps;
    rank.spent.phases[Phase::forward] += 0.006;
    rank.spent.phases[Phase::backward] += 0.003;
    rank.spent.phases[Phase::comm_exposed] += 0.001;
    rank.spent.phases[disturbed ? d.phase : Phase::comm_exposed] += d.extra_s;
    rank.vitals.seconds += 0.010 + d.extra_s;
    if (disturbed) rank.vitals[d.vital] += d.a_second * (0.010 + d.extra_s);
  }

  std::vector<Account> accounts_{4};
  SlowDowns slow_downs_{hosts_of_ranks, [this] { return accounts_; }};
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
                                        .phase = Phase::forward,
                                        .extra_s = 0.010,
                                        .vital = Vital::still,
                                        .a_second = 0.5});
  CHECK(told ==
        "slow_down: 3200.0 examples/s for 5 s, 50 % less than the usual 6400.0; forward grew from "
        "6.0 to 16.0 ms a step on rank 2 (b); with it moved, on b: the process stood still 0 -> 50 "
        "% of the time\n");
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
         .phase = Phase::backward,
         .extra_s = 0.01,
         .vital = Vital::others,
         .a_second = 1},
        "backward grew from 3.0 to 13.0 ms a step on rank 0 (a), rank 1 (a); with it moved, on a: "
        "CPUs used by other processes 0 -> 1 of the host's"},
       {{.ranks = {0, 1, 2, 3},
         .phase = Phase::data_wait,
         .extra_s = 0.02,
         .vital = Vital::disk_waits,
         .a_second = 0.5},
        "data wait grew from 0.0 to 20.0 ms a step on all ranks; with it moved, on a: CPUs waiting "
        "for disks 0 -> 0.5 of the host's"},
       {{.ranks = {3},
         .phase = Phase::comm_exposed,
         .extra_s = 0.04,
         .vital = Vital::retransmitted,
         .a_second = 30},
        "exposed communication grew from 1.0 to 41.0 ms a step on all ranks, and no rank's own "
        "work "
        "did; with it moved, on b: TCP segments sent again 0 -> 30 a second"},
       {{.ranks = {2},
         .phase = Phase::comm_exposed,
         .extra_s = 0.04,
         .vital = Vital::sending,
         .a_second = 0.9},
        "on all ranks, and no rank's own work did; b sends 90 % of the time, others 0 %: they wait "
        "for its link; nothing else was seen to move"},
       {{.ranks = {1, 2},
         .phase = Phase::comm_exposed,
         .extra_s = 0.04,
         .vital = Vital::sending,
         .a_second = 0.9},
        "and no rank's own work did; nothing else was seen to move"},
       {{.ranks = {1},
         .phase = Phase::comm_exposed,
         .extra_s = 0.01,
         .vital = Vital::still,
         .a_second = 0.5},
        "on rank 1 (a); with it moved, on a: the process stood still"},
       {{.ranks = {0}, .phase = Phase::other, .extra_s = 0.01},
        "other grew from 0.0 to 10.0 ms a step on rank 0 (a); nothing else was seen to move"}}));
  Job job;
  job.run(30, {});
  CHECK_THAT(job.run(10, disturbance), Contains(expected));
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
  SlowDowns slow_downs({"a"}, [] { return std::vector<Account>(); });
  std::string told;
  for (int step = 0; step < 2000; ++step)
    told += slow_downs.step(step < 1000 ? 0.01 : 0.02, 64, false).text;
  CHECK_THAT(told, Contains("50 % less") && Contains("what grew is not known"));
}
