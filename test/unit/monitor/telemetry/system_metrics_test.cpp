#include "ringtrain/monitor/telemetry/system_metrics.hpp"

#include <cmath>

#include "support/catch.hpp"

using namespace ringtrain;
using namespace ringtrain::monitor;

namespace {

// Ten seconds each, in which `metric` grows by so much a second.
std::vector<MetricChange> from_to(SystemMetric metric, double before, double now) {
  SystemSample first, second, third;
  first.seconds = 100;
  second.seconds = 110;
  third.seconds = 120;
  second[metric] = 10 * before;
  third[metric] = second[metric] + 10 * now;
  return worse({first, second}, {second, third});
}

}  // namespace

TEST_CASE("system metrics: what got worse is told with both values and its unit") {
  const auto moved = from_to(SystemMetric::still, 0, 0.48);
  REQUIRE(moved.size() == 1);
  CHECK(moved[0].metric == SystemMetric::still);
  CHECK(moved[0].text == "the process stood still 0 -> 48 % of the time");
  CHECK(from_to(SystemMetric::gpu_clock, 1980e6, 1200e6).at(0).text ==
        "GPU clock 1980 -> 1200 MHz");
  CHECK(from_to(SystemMetric::retransmitted, 1, 40).at(0).text ==
        "TCP segments sent again 1 -> 40 a second");
}

TEST_CASE("system metrics: what got better, or little worse, is not told") {
  CHECK(from_to(SystemMetric::still, 0.48, 0).empty());
  CHECK(from_to(SystemMetric::still, 0, 0.04).empty());
  CHECK(from_to(SystemMetric::preempted, 1000, 1200).empty());
  CHECK(from_to(SystemMetric::gpu_clock, 1200e6, 1980e6).empty());
  CHECK(from_to(SystemMetric::gpu_clock, 1980e6, 1950e6).empty());
}

TEST_CASE("system metrics: what cannot be read is never worse") {
  CHECK(from_to(SystemMetric::throttled, 0, std::nan("")).empty());
}

TEST_CASE("system metrics: without time between them there is nothing to compare") {
  CHECK(worse({}, {}).empty());
  SystemSample later;
  later.seconds = 5;
  later[SystemMetric::still] = 5;
  CHECK(worse({}, {{}, later}).empty());
  CHECK(worse({{}, later}, {later, later}).empty());
}

TEST_CASE("system metrics: what is watched is named as far as it is there") {
  SystemSample rank;
  const std::string alone = watched_metrics(rank, false);
  CHECK(alone ==
        "stopped or unscheduled processes, CPU quotas, stolen CPU time, other processes, waits "
        "for disks, paging");
  CHECK(watched_metrics(rank, true) == alone + ", lost packets, round trips");
  rank[SystemMetric::throttled] = std::nan("");
  CHECK(watched_metrics(rank, false) ==
        "stopped or unscheduled processes, stolen CPU time, other processes, waits for disks, "
        "paging");
  rank[SystemMetric::throttled] = 0;
  rank[SystemMetric::gpu_clock] = 1e9;
  CHECK(watched_metrics(rank, false) == alone + ", GPU clocks, GPU heat, GPU power limits");
}

TEST_CASE("system metrics: for whatever moved there is advice") {
  for (std::size_t i = 0; i < metric_count; ++i) {
    const auto metric = static_cast<SystemMetric>(i);
    if (metric == SystemMetric::own_cpu) continue;
    const bool falls = metric == SystemMetric::network || metric == SystemMetric::gpu_clock;
    const auto moved = falls ? from_to(metric, 1e12, 1) : from_to(metric, 0, 1e12);
    REQUIRE(moved.size() == 1);
    CHECK(moved[0].metric == metric);
    CHECK_FALSE(moved[0].advice.empty());
  }
}
