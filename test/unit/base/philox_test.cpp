#include "ringtrain/base/philox.hpp"

#include <cmath>
#include <vector>

#include "support/catch.hpp"

using namespace ringtrain;

TEST_CASE("Philox: gives the published words for the all-zero key and counter") {
  // kat_vectors of Random123: philox4x32 10 rounds, counter 0, key 0.
  CHECK(Philox(0, Purpose{0}).at(0) ==
        Philox::Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
}

TEST_CASE("Philox: streams differ by seed, purpose, epoch and sample, and repeat exactly") {
  const auto first = [](Philox p) { return p.next(); };

  const auto base = first(Philox(1, Purpose::order, 2, 3));

  CHECK(first(Philox(1, Purpose::order, 2, 3)) == base);
  CHECK(first(Philox(2, Purpose::order, 2, 3)) != base);
  CHECK(first(Philox(1, Purpose::augment, 2, 3)) != base);
  CHECK(first(Philox(1, Purpose::order, 3, 3)) != base);
  CHECK(first(Philox(1, Purpose::order, 2, 4)) != base);
}

TEST_CASE("Philox: draws are uniform and normal in their first two moments") {
  Philox random(7, Purpose::initialise);
  const int n = 100'000;
  double sum = 0, normal_sum = 0, normal_squares = 0;
  std::vector<int> counts(7);
  for (int i = 0; i < n; ++i) {
    const float u = random.uniform();
    REQUIRE((u >= 0 && u < 1));
    sum += u;
    const double z = random.normal();
    normal_sum += z;
    normal_squares += z * z;
    ++counts[random.below(7)];
  }

  CHECK(std::abs(sum / n - 0.5) < 0.005);
  CHECK(std::abs(normal_sum / n) < 0.015);
  CHECK(std::abs(normal_squares / n - 1) < 0.02);
  for (int count : counts) CHECK(std::abs(count - n / 7) < 700);
}
