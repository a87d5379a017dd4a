// Tests that fail and tests that are skipped, for endings.sh: CTest never runs them.
#include "support/catch.hpp"

TEST_CASE("77 checks fail", "[planted]") {
  for (int i = 0; i < 77; ++i) CHECK(i == -1);
}

TEST_CASE("all is well", "[planted]") { CHECK(true); }

TEST_CASE("skipped", "[planted]") { skip_test("planted"); }

TEST_CASE("also skipped", "[planted]") { skip_test("planted, too"); }

TEST_CASE("skipped after a check", "[planted]") {
  CHECK(true);
  skip_test("planted too late");
}

TEST_CASE("fails after a skip", "[planted]") {
  const int round = GENERATE(0, 1);
  if (round == 0) skip_test("planted in the first round");
  CHECK(round == 0);
}

TEST_CASE("skipped in one section, checked in another", "[planted]") {
  SECTION("skipped") { skip_test("planted in a section"); }
  SECTION("checked") { CHECK(true); }
}

TEST_CASE("77 as an exception", "[planted]") { throw 77; }
