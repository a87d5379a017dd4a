#include "io/loader/sampler.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <vector>

#include "support/catch.hpp"
#include "support/sanitized.hpp"

using namespace ringtrain;
using namespace ringtrain::io;

namespace {

std::vector<std::uint64_t> epoch_of(const Sampler& order, std::uint64_t size, std::uint64_t epoch) {
  std::vector<std::uint64_t> samples;
  for (std::uint64_t i = 0; i < size; ++i) samples.push_back(order.at(epoch * size + i).sample);
  return samples;
}

/// Pearson's statistic in standard deviations from its mean.
double chi_square_score(const std::vector<int>& counts, double expected) {
  double sum = 0;
  for (const int count : counts) sum += (count - expected) * (count - expected) / expected;
  const double freedom = static_cast<double>(counts.size()) - 1;
  return (sum - freedom) / std::sqrt(2 * freedom);
}

}  // namespace

TEST_CASE("order: every epoch has each sample exactly once") {
  const auto size = GENERATE(1u, 2u, 3u, 4u, 5u, 7u, 8u, 9u, 10u, 63u, 64u, 65u, 1000u, 10'001u);
  const auto epoch = GENERATE(0u, 1u, 77u);
  CAPTURE(size, epoch);
  const Sampler order(size, 42);

  auto samples = epoch_of(order, size, epoch);
  std::ranges::sort(samples);

  std::vector<std::uint64_t> expected(size);
  std::iota(expected.begin(), expected.end(), 0u);
  CHECK(samples == expected);
  CHECK(order.at(epoch * std::uint64_t{size}).epoch == epoch);
}

TEST_CASE("order: depends on seed and epoch") {
  const auto first = epoch_of(Sampler(100, 1), 100, 0);

  CHECK(epoch_of(Sampler(100, 1), 100, 0) == first);
  CHECK(epoch_of(Sampler(100, 2), 100, 0) != first);
  CHECK(epoch_of(Sampler(100, 1), 100, 1) != first);
}

TEST_CASE("order: all permutations of few samples are equally likely") {
  const auto size = sanitized ? GENERATE(2u, 3u, 4u, 5u, 6u) : GENERATE(2u, 3u, 4u, 5u, 6u, 7u);
  const int epochs = sanitized ? 20'000 : 60'000;  // so many that none of 6! or 7! is left out
  const Sampler order(size, 7);
  std::map<std::vector<std::uint64_t>, int> seen;

  for (int e = 0; e < epochs; ++e) ++seen[epoch_of(order, size, e)];

  std::vector<int> counts;
  for (const auto& [permutation, count] : seen) counts.push_back(count);
  const double permutations = std::tgamma(size + 1.0);
  REQUIRE(static_cast<double>(counts.size()) == std::round(permutations));
  CHECK(std::abs(chi_square_score(counts, epochs / permutations)) < 4);
}

TEST_CASE("order: a sample is anywhere, and next to any other, equally often") {
  const std::uint64_t size = 100;
  const int epochs = sanitized ? 5'000 : 20'000;
  const Sampler order(size, 3);
  std::vector<int> places(size), successors(size);

  for (int e = 0; e < epochs; ++e) {
    const auto samples = epoch_of(order, size, e);
    const auto place = std::ranges::find(samples, 17u) - samples.begin();
    ++places[place];
    if (place + 1 < static_cast<int>(size)) ++successors[samples[place + 1]];
  }

  CHECK(std::abs(chi_square_score(places, epochs / 100.0)) < 4);
  successors.erase(successors.begin() + 17);
  CHECK(std::abs(chi_square_score(successors, epochs / 100.0)) < 4);
}

TEST_CASE("order: of many samples has no more fixed points and runs than chance") {
  const std::uint64_t size = 50'000;
  const auto samples = epoch_of(Sampler(size, 11), size, 0);

  int fixed = 0, follows = 0, rises = 0;
  for (std::uint64_t i = 0; i + 1 < size; ++i) {
    fixed += samples[i] == i;
    follows += samples[i + 1] == samples[i] + 1;
    rises += samples[i + 1] > samples[i];
  }

  CHECK(fixed <= 6);    // Poisson with mean 1
  CHECK(follows <= 6);  // the same
  CHECK(std::abs(rises - static_cast<int>(size) / 2) < 4 * std::sqrt(size / 12.0));
}
