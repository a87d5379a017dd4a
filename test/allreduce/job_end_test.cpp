#include "allreduce/job_end.hpp"

#include <catch2/catch.hpp>

using namespace ringtrain;
using namespace std::chrono_literals;

TEST_CASE("report_delay: lower hosts go first, by enough for the abort to arrive") {
  CHECK(report_delay(0) == 0ms);
  for (int host = 1; host <= 10; ++host)
    CHECK(report_delay(host) - report_delay(host - 1) == 300ms);
}

TEST_CASE("report_delay: stays within what the waiting ranks allow") {
  CHECK(report_delay(1000) == report_delay(10));
  CHECK(report_delay(1000) <= 3s);
}
