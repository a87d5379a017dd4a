#include "io/loader/sampler.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <utility>
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

namespace {

/// Classes of 1, 5 and 34 samples; none has label 2.
std::vector<int> rare_labels() {
  std::vector<int> labels(40, 3);
  labels[17] = 0;
  for (const int sample : {2, 9, 20, 31, 39}) labels[sample] = 1;
  return labels;
}

}  // namespace

TEST_CASE("order: balanced, each class comes equally often in an epoch, or once more") {
  const std::vector<int> labels = rare_labels();
  const Sampler order = Sampler::balanced(labels, GENERATE(1u, 42u));

  for (int epoch = 0; epoch < 6; ++epoch) {
    std::map<int, int> counts;
    for (const std::uint64_t sample : epoch_of(order, labels.size(), epoch))
      ++counts[labels[sample]];
    CHECK(counts.size() == 3);
    for (const auto& [label, count] : counts) CHECK((count == 13 || count == 14));
  }
}

TEST_CASE("order: balanced, samples of a class have come equally often, or once more") {
  const std::vector<int> labels = rare_labels();
  const Sampler order = Sampler::balanced(labels, 5);
  std::vector<int> seen(labels.size());

  for (int epoch = 0; epoch < 20; ++epoch) {
    for (const std::uint64_t sample : epoch_of(order, labels.size(), epoch)) ++seen[sample];
    for (const int label : {0, 1, 3}) {
      std::vector<int> of_class;
      for (std::size_t i = 0; i < labels.size(); ++i)
        if (labels[i] == label) of_class.push_back(seen[i]);
      CHECK(std::ranges::max(of_class) <= std::ranges::min(of_class) + 1);
    }
  }
}

TEST_CASE("order: balanced, a draw says how often its sample came before") {
  const std::vector<int> labels = rare_labels();
  const Sampler order = Sampler::balanced(labels, 5);
  std::map<std::uint64_t, std::vector<std::uint32_t>> repeats;

  for (std::uint64_t position = 0; position < 7 * labels.size(); ++position) {
    const Sampler::Draw draw = order.at(position);
    CHECK(draw.epoch == position / labels.size());
    repeats[draw.sample].push_back(draw.repeat);
  }

  for (auto& [sample, all] : repeats) {
    std::ranges::sort(all);
    std::vector<std::uint32_t> expected(all.size());
    std::iota(expected.begin(), expected.end(), 0u);
    CHECK(all == expected);
  }
}

TEST_CASE("order: balanced, equal classes have each sample exactly once an epoch") {
  std::vector<int> labels(60);
  for (std::size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<int>(i % 4);
  const Sampler order = Sampler::balanced(labels, 9);
  std::vector<std::uint64_t> expected(labels.size());
  std::iota(expected.begin(), expected.end(), 0u);
  const auto first = epoch_of(order, labels.size(), 0), second = epoch_of(order, labels.size(), 1);

  for (auto samples : {first, second}) {
    std::ranges::sort(samples);
    CHECK(samples == expected);
  }
  CHECK(first != second);
  CHECK(epoch_of(Sampler::balanced(labels, 10), labels.size(), 0) != first);
}

TEST_CASE("order: balanced, neither classes nor samples come in an order") {
  std::vector<int> labels(600, 1);
  for (int sample = 0; sample < 60; ++sample) labels[sample] = 0;
  const Sampler order = Sampler::balanced(labels, 3);
  std::vector<int> successors(2), pairs(2);

  for (int epoch = 0; epoch < 20; ++epoch) {
    const auto samples = epoch_of(order, labels.size(), epoch);
    for (std::size_t i = 0; i + 1 < samples.size(); ++i) {
      ++successors[labels[samples[i]] == labels[samples[i + 1]]];
      ++pairs[samples[i] < samples[i + 1]];
    }
  }

  const double all = 20 * 599;
  CHECK(std::abs(chi_square_score(successors, all / 2)) < 4);
  CHECK(std::abs(chi_square_score(pairs, all / 2)) < 4);
}

TEST_CASE("order: repeated, an epoch has its first samples so often, neighbours differ") {
  const auto size = GENERATE(10u, 48u, 96u, 97u, 1000u);
  const int repeats = GENERATE(2, 3, 4);
  CAPTURE(size, repeats);
  const Sampler order(size, 9, repeats), single(size, 9);
  std::set<std::pair<std::uint64_t, std::uint32_t>> seen;
  std::set<std::uint64_t> samples;
  std::map<std::uint64_t, std::uint64_t> first, last;

  for (std::uint64_t i = 0; i < size; ++i) {
    const Sampler::Draw draw = order.at(3 * std::uint64_t{size} + i);
    REQUIRE(draw.epoch == 3);
    REQUIRE(draw.repeat < static_cast<std::uint32_t>(repeats));
    REQUIRE(seen.insert({draw.sample, draw.repeat}).second);
    samples.insert(draw.sample);
    first.try_emplace(draw.sample, i);
    last[draw.sample] = i;
    if (i % 2 == 1 && size > 10)
      REQUIRE(draw.sample != order.at(3 * std::uint64_t{size} + i - 1).sample);
  }

  const std::size_t distinct = (size + repeats - 1) / repeats;
  CHECK(samples.size() == distinct);
  const auto once = epoch_of(single, size, 3);
  CHECK(samples == std::set(once.begin(), once.begin() + distinct));
  for (const auto& [sample, place] : first) CHECK(last[sample] - place < 16u * repeats);
}
