#include "io/loader/sampler.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "ringtrain/base/error.hpp"
#include "ringtrain/base/philox.hpp"

namespace ringtrain::io {
namespace {

// Four rounds look random to those who see few outputs (Luby and Rackoff); an epoch shows all. With
// 24 all permutations of few samples, where bias is largest, are equally likely in the test; with
// 12 they are not. They take 0.7 us a sample.
constexpr std::uint64_t rounds = 24;

/// A random function of `input`, another one for each key and round, with values below `bound`.
std::uint64_t mix(const Permutations::Key& key, std::uint64_t round, std::uint64_t input,
                  std::uint64_t bound) {
  const Philox random(key.seed, Purpose::order, key.stream, key.pass * rounds + round);
  const auto words = random.at(static_cast<std::uint32_t>(input));
  return (std::uint64_t{words[0]} << 32 | words[1]) % bound;
}

}  // namespace

Permutations::Permutations(std::uint64_t size) : size_(size) {
  expects(size > 0, "an order needs at least one sample");
  // An even number of rows: shifts along odd sides make even permutations only.
  rows_ = 2 * static_cast<std::uint64_t>(std::ceil(std::sqrt(static_cast<double>(size)) / 2));
  columns_ = (size + rows_ - 1) / rows_;
}

// The grid has fewer than `rows` places too many. Walking on from such a place along the
// permutation's cycle stays a permutation of the others, and is rarely needed.
std::uint64_t Permutations::at(const Key& key, std::uint64_t index) const {
  do index = permuted(key, index);
  while (index >= size_);
  return index;
}

// A Feistel network on the places of a rows x columns grid (Black and Rogaway, "Ciphers with
// arbitrary finite domains", CT-RSA 2002): each round shifts one coordinate by a random function of
// the other, which can be undone, so the whole is a permutation.
std::uint64_t Permutations::permuted(const Key& key, std::uint64_t index) const {
  std::uint64_t row = index / columns_, column = index % columns_;
  for (std::uint64_t round = 0; round < rounds; round += 2) {
    row = (row + mix(key, round, column, rows_)) % rows_;
    column = (column + mix(key, round + 1, row, columns_)) % columns_;
  }
  return row * columns_ + column;
}

Sampler::Sampler(std::uint64_t size, std::uint64_t seed, int repeats)
    : size_(size), seed_(seed), repeats_(static_cast<std::uint64_t>(repeats)), epochs_(size) {
  expects(repeats >= 1, "an order repeats samples at least once");
}

Sampler Sampler::balanced(const std::vector<int>& labels, std::uint64_t seed) {
  std::map<int, std::vector<std::uint64_t>> samples;
  for (std::uint64_t i = 0; i < labels.size(); ++i) samples[labels[i]].push_back(i);
  Sampler sampler(labels.size(), seed);
  for (auto& [label, own] : samples) {
    const Permutations passes(own.size());
    sampler.classes_.push_back({std::move(own), passes});
  }
  return sampler;
}

Sampler::Draw Sampler::at(std::uint64_t position) const {
  const auto epoch = static_cast<std::uint32_t>(position / size_);
  if (repeats_ > 1) return repeated(epoch, position % size_);
  const std::uint64_t place = epochs_.at({seed_, epoch}, position % size_);
  return classes_.empty() ? Draw{epoch, place} : of_class(epoch, place);
}

// Blocks of some samples, which come one after the other, then again, and so on; each time they
// begin one later, so that neighbours become others'. The repeats of a sample stay in a step, or
// nearly, as those of all ranks do in torchvision's RASampler.
Sampler::Draw Sampler::repeated(std::uint32_t epoch, std::uint64_t place) const {
  constexpr std::uint64_t most = 16;
  const std::uint64_t block = place / (most * repeats_), first = block * most;
  const std::uint64_t left = (size_ - first * repeats_ + repeats_ - 1) / repeats_;
  const std::uint64_t samples = std::min(most, left), within = place - first * repeats_;
  const std::uint64_t turn = within / samples, at = (within + turn) % samples;
  return {epoch, epochs_.at({seed_, epoch}, first + at), static_cast<std::uint32_t>(turn)};
}

// The draws of all epochs, one after the other, go to the classes in turn. Pass 0 of each stream is
// an epoch's.
Sampler::Draw Sampler::of_class(std::uint32_t epoch, std::uint64_t place) const {
  const std::uint64_t draw = epoch * size_ + place, number = draw % classes_.size();
  const auto& [samples, passes] = classes_[number];
  const std::uint64_t turn = draw / classes_.size(), pass = turn / samples.size();
  const std::uint64_t index =
      passes.at({seed_, static_cast<std::uint32_t>(number), pass + 1}, turn % samples.size());
  return {epoch, samples[index], static_cast<std::uint32_t>(pass)};
}

}  // namespace ringtrain::io
