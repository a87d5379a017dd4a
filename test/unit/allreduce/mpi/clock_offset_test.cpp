#include <cmath>

#include "ringtrain/allreduce/mpi/clock_sync.hpp"
#include "support/catch.hpp"

using namespace ringtrain;
using namespace ringtrain::allreduce;

TEST_CASE("clock offset: the shortest round trip decides") {
  // the other clock is 100 s before ours; a late answer, a late question, and a quick exchange
  const ClockProbe probes[] = {
      {1, 101.001, 1.5}, {2, 102.7, 2.701}, {3, 103.0012, 3.002}, {4, 104.1, 4.3}};

  const ClockOffset found = offset_from(probes);

  CHECK(found.at == Approx(3.001));
  CHECK(found.offset == Approx(100.0002).epsilon(1e-9));
  CHECK(found.doubt == Approx(0.001));
  CHECK(std::abs(found.offset - 100) <= found.doubt);
}

TEST_CASE("clock offset: without probes nothing is known") { CHECK_THROWS(offset_from({})); }

TEST_CASE("clock offset: between two measurements clocks drift evenly") {
  const ClockOffset before{.at = 10, .offset = 5}, after{.at = 20, .offset = 6};

  CHECK(by_other_clock(10, before, after) == Approx(15));
  CHECK(by_other_clock(15, before, after) == Approx(20.5));
  CHECK(by_other_clock(20, before, after) == Approx(26));
  CHECK(by_other_clock(30, before, after) == Approx(37));
  CHECK(by_other_clock(10, before, before) == Approx(15));  // at one moment
}

TEST_CASE("clock offset: a job of one rank has one clock") {
  const MpiSession session;

  CHECK(measure_clock_offset(session).offset == 0);
}
