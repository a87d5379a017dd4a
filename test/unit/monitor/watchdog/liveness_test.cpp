#include "ringtrain/monitor/watchdog/liveness.hpp"

#include "support/catch.hpp"

using namespace ringtrain;
using namespace ringtrain::monitor;
using Catch::Contains;

namespace {

using Kind = Verdict::Kind;

RankHealth at(metrics::Phase phase, double seconds, std::uint64_t step = 7) {
  return {.status = {step, phase, seconds, 30}, .connected = true};
}

std::vector<RankHealth> training() {
  return {at(metrics::Phase::forward, 0.1), at(metrics::Phase::backward, 0.2),
          at(metrics::Phase::communication, 0.1), at(metrics::Phase::data_wait, 0)};
}

std::optional<Verdict> judged(const std::vector<RankHealth>& ranks) {
  return judge(ranks, 10, false);
}

}  // namespace

TEST_CASE("verdict: a job whose ranks move goes on") {
  CHECK_FALSE(judged(training()));
  CHECK_FALSE(judged({at(metrics::Phase::checkpoint, 29.9)}));
}

TEST_CASE("verdict: a rank that has ended without a goodbye is lost, even after a pause") {
  auto ranks = training();
  ranks[2].lost = true;
  ranks[2].process = ProcessState::gone;
  ranks[2].lost_s = 0.4;
  CHECK_FALSE(judged(ranks));  // its goodbye may be on its way
  ranks[2].lost_s = 0.6;
  for (const bool lenient : {false, true}) {
    const auto verdict = judge(ranks, 10, lenient);
    REQUIRE(verdict);
    CHECK(verdict->kind == Kind::dead);
    CHECK(verdict->culprits == std::vector{2});
    CHECK(verdict->code() == Exit::rank_lost);
  }
  ranks[2].left = true;
  CHECK_FALSE(judged(ranks));
}

TEST_CASE("verdict: a rank whose process lives, or may, has the time of a silent one to return") {
  auto ranks = training();
  ranks[2].lost = true;
  ranks[2].process = GENERATE(ProcessState::waits, ProcessState::unknown);
  ranks[2].silent_s = ranks[2].lost_s = 9.9;
  CHECK_FALSE(judged(ranks));
  ranks[2].silent_s = ranks[2].lost_s = 10.1;
  REQUIRE(judged(ranks));
  CHECK(judged(ranks)->kind == Kind::disconnected);
  CHECK(judged(ranks)->culprits == std::vector{2});
  CHECK(judged(ranks)->code() == Exit::rank_lost);
  CHECK_THAT(
      describe(*judged(ranks), ranks, std::vector<std::string>(4, "a")),
      Contains("rank 2 on a has not been heard for 10 s: connection lost and not made again"));
  ranks[1].silent_s = 11;  // a host that is silent is worse
  CHECK(judged(ranks)->kind == Kind::silent);
  CHECK(judged(ranks)->culprits == std::vector{1});
}

TEST_CASE("verdict: a silent rank is lost, but for one that was never heard or has left") {
  auto ranks = training();
  ranks[3].silent_s = 10.1;
  const auto verdict = judged(ranks);
  REQUIRE(verdict);
  CHECK(verdict->kind == Kind::silent);
  CHECK(verdict->culprits == std::vector{3});
  CHECK(verdict->code() == Exit::rank_lost);
  CHECK_FALSE(judge(ranks, 10, true));
  ranks[3].left = true;
  CHECK_FALSE(judged(ranks));
  ranks[3] = {.status = {}, .silent_s = 100};
  CHECK_FALSE(judged(ranks));
}

TEST_CASE("verdict: a silent rank that is seen to want a CPU is not lost, one that is stopped is") {
  auto ranks = training();
  ranks[3].silent_s = 11;
  ranks[3].process = ProcessState::runs;
  CHECK_FALSE(judged(ranks));
  ranks[3].silent_s = 299;
  CHECK_FALSE(judged(ranks));
  ranks[3].silent_s = 301;
  CHECK(judged(ranks)->culprits == std::vector{3});
  ranks[3].silent_s = 11;
  ranks[3].late_s = 20;  // before it was stopped
  for (const auto state : {ProcessState::stopped, ProcessState::frozen, ProcessState::waits}) {
    ranks[3].process = state;
    CHECK(judged(ranks)->kind == Kind::silent);
  }
}

TEST_CASE("verdict: a rank on a host that answers has longer the later its ticks were") {
  RankHealth rank;
  CHECK(patience_s(rank, 10) == 10);
  rank.late_s = 0.4;  // as on any busy host
  CHECK(patience_s(rank, 10) == 10);
  rank.late_s = 1;
  CHECK(patience_s(rank, 10) == 20);
  CHECK(patience_s(rank, 40) == 80);
  rank.late_s = 100;
  CHECK(patience_s(rank, 10) == 60);
  rank.acknowledged = false;
  CHECK(patience_s(rank, 10) == 10);
}

TEST_CASE("verdict: the rank that works too long is to blame, not those that wait for it") {
  const metrics::Phase phase = GENERATE(metrics::Phase::data_wait, metrics::Phase::forward,
                                        metrics::Phase::backward, metrics::Phase::update);
  std::vector<RankHealth> ranks(4, at(metrics::Phase::communication, 40));
  ranks[1] = at(phase, 31);
  const auto verdict = judged(ranks);
  REQUIRE(verdict);
  CHECK(verdict->kind == Kind::stuck);
  CHECK(verdict->culprits == std::vector{1});
  CHECK(verdict->phase == phase);
  CHECK(verdict->code() == Exit::stuck);
  ranks[1].status.in_phase_s = 29;
  CHECK_FALSE(judged(ranks));  // it may take that long
}

TEST_CASE("verdict: of several that are late, the one furthest behind is to blame") {
  std::vector<RankHealth> ranks(4, at(metrics::Phase::communication, 40));
  ranks[1] = at(metrics::Phase::forward, 35);
  ranks[3] = at(metrics::Phase::data_wait, 35);
  CHECK(judged(ranks)->culprits == std::vector{3});
  ranks[1].status.step = 6;
  CHECK(judged(ranks)->culprits == std::vector{1});
  ranks[3] = ranks[1];
  CHECK(judged(ranks)->culprits == std::vector{1, 3});
}

TEST_CASE("verdict: where all wait, those behind are to blame, or the network") {
  std::vector<RankHealth> ranks(3, at(metrics::Phase::communication, 31));
  auto verdict = judged(ranks);
  REQUIRE(verdict);
  CHECK(verdict->culprits.empty());
  CHECK(verdict->kind == Kind::stuck);
  ranks[0].status.meetings = ranks[2].status.meetings = 4;  // rank 1 has not come to this one
  CHECK(judged(ranks)->culprits == std::vector{1});
  ranks[2].status.step = 6;
  CHECK(judged(ranks)->culprits == std::vector{2});
  ranks[0].status.in_phase_s = 1;
  CHECK_FALSE(judged(ranks));
  ranks[0] = {};  // never heard: it may be at work
  CHECK_FALSE(judged(ranks));
  ranks[1].status.in_phase_s = ranks[2].status.in_phase_s = 901;
  REQUIRE(judged(ranks));
  CHECK(judged(ranks)->culprits == std::vector{2});
  CHECK(judged({at(metrics::Phase::gpu, 31)})->culprits == std::vector{0});
}

TEST_CASE("verdict: between hosts, a rank that waits a step behind is not to blame") {
  const std::vector<std::string> names = {"a", "b", "c"};
  std::vector<RankHealth> ranks(3, at(metrics::Phase::communication, 31, 8));
  ranks[1].status.step = 7;  // the last piece of this sum is still on its way to it
  CHECK(judged(ranks)->culprits == std::vector{1});
  for (std::size_t r = 0; r < ranks.size(); ++r) ranks[r].host = static_cast<int>(r);
  const auto verdict = judged(ranks);
  REQUIRE(verdict);
  CHECK(verdict->kind == Kind::stuck);
  CHECK(verdict->culprits.empty());
  CHECK(details(*verdict, names) == " how=stuck");
  ranks[2] = at(metrics::Phase::data_wait, 31, 8);  // does not wait
  CHECK(judged(ranks)->culprits == std::vector{2});
}

TEST_CASE("verdict: a rank that others wait for long is told before its limit") {
  const std::vector<std::string> hosts = {"a", "b", "c"};
  std::vector<RankHealth> ranks(3, at(metrics::Phase::ranks, 61, 0));
  ranks[1] = {.status = {0, metrics::Phase::init, 62, 300}, .connected = true};
  CHECK(long_wait(ranks, hosts, 60) ==
        "rank 1 on b has been in init for 62 s, and others wait for it; its limit is 300 s");
  CHECK_FALSE(judged(ranks));
  CHECK(long_wait(ranks, hosts, 70).empty());
  ranks[1].status.in_phase_s = 3;  // it has just come to this
  CHECK(long_wait(ranks, hosts, 60).empty());
  CHECK(long_wait(std::vector(3, at(metrics::Phase::resume, 100)), hosts, 60).empty());
  CHECK(long_wait(std::vector(3, at(metrics::Phase::ranks, 20)), hosts, 60).empty());
}

TEST_CASE("verdict: limits follow the steps, and are wide where nothing is known") {
  CHECK(limit_s(metrics::Phase::data_wait, 0.01, 120) == 26);
  CHECK(limit_s(metrics::Phase::backward, 12, 120) == 116);
  CHECK(limit_s(metrics::Phase::forward, 0, 120) >= 300);
  CHECK(limit_s(metrics::Phase::init, 0.01, 120) == 900);
  for (const metrics::Phase start :
       {metrics::Phase::open, metrics::Phase::list, metrics::Phase::index, metrics::Phase::plan,
        metrics::Phase::resume})
    CHECK(limit_s(start, 0, 120) == 60);
  CHECK(limit_s(metrics::Phase::gpu, 0, 120) == 300);
  CHECK(limit_s(metrics::Phase::gpu, 12, 120) == 116);
  CHECK(limit_s(metrics::Phase::exit, 0, 120) == 60);
  CHECK(limit_s(metrics::Phase::checkpoint, 0.01, 120) > 120);
}

TEST_CASE("verdict: at the start, who makes no progress is to blame, with the path it is at") {
  const std::vector<std::string> hosts = {"a", "b", "c"};
  std::vector<RankHealth> ranks(3, at(metrics::Phase::ranks, 61, 0));
  ranks[1].status = {0, metrics::Phase::open, 61, 60, 0, "/mnt/dead/metrics.jsonl"};
  const auto verdict = judged(ranks);
  REQUIRE(verdict);
  CHECK(verdict->kind == Kind::stuck);
  CHECK(verdict->culprits == std::vector{1});
  CHECK(describe(*verdict, ranks, hosts) ==
        "rank 1 on b has been at open /mnt/dead/metrics.jsonl for 61 s without progress; its limit "
        "is 60 s");
  CHECK_THAT(table(ranks, hosts), Contains("at /mnt/dead/metrics.jsonl\n"));
  ranks[1].status.in_phase_s = 3;  // it goes on, and the others wait for it
  for (const int r : {0, 2}) ranks[r].status.in_phase_s = 5000;
  CHECK_FALSE(judged(ranks));
}

TEST_CASE("verdict: the words name rank, host, phase, step and seconds") {
  const std::vector<std::string> hosts = {"a", "b", "c"};
  std::vector<RankHealth> ranks(3, at(metrics::Phase::communication, 40));
  ranks[1] = at(metrics::Phase::data_wait, 34, 120);
  CHECK(describe(*judged(ranks), ranks, hosts) ==
        "rank 1 on b has been in data of step 120 for 34 s; its limit is 30 s");
  ranks[1].silent_s = 12;
  CHECK_THAT(describe(*judged(ranks), ranks, hosts),
             Contains("rank 1 on b has not been heard for 12 s"));
  ranks[1].process = ProcessState::stopped;
  CHECK_THAT(describe(*judged(ranks), ranks, hosts), Contains("12 s: its process is stopped"));
  ranks[1].process = ProcessState::frozen;
  CHECK_THAT(describe(*judged(ranks), ranks, hosts),
             Contains("12 s: its process is frozen by its control group"));
  ranks[1].process = ProcessState::unknown;
  ranks[1].acknowledged = false;
  CHECK_THAT(describe(*judged(ranks), ranks, hosts),
             Contains("12 s: its host is down or the network is cut"));
  ranks[2].lost = true;
  ranks[2].lost_s = 1;
  ranks[2].process = ProcessState::gone;
  CHECK_THAT(describe(*judged(ranks), ranks, hosts),
             Contains("rank 2 on c has ended without a word in all-reduce of step 7"));
  const std::string all = table(ranks, hosts);
  CHECK_THAT(all, Contains("data") && Contains("120") && Contains("has ended"));
  CHECK(std::ranges::count(all, '\n') == 4);
  std::vector<RankHealth> waiting(3, at(metrics::Phase::communication, 31));
  CHECK_THAT(describe(*judged(waiting), waiting, hosts),
             Contains("the network between them, or a GPU"));
}

TEST_CASE("verdict: programs are told who is to blame, and how") {
  const std::vector<std::string> hosts = {"a", "b", "b", "c"};

  CHECK(details({Kind::dead, {2}}, hosts) == " how=dead ranks=2 hosts=b");
  CHECK(details({Kind::silent, {1, 3}}, hosts) == " how=silent ranks=1,3 hosts=b,c");
  CHECK(details({Kind::disconnected, {3}}, hosts) == " how=disconnected ranks=3 hosts=c");
  CHECK(details({Kind::stuck, {}}, hosts) == " how=stuck");
}
