#include "io/loader/sampler.hpp"

#include <cmath>

#include "ringtrain/base/error.hpp"
#include "ringtrain/base/philox.hpp"

namespace ringtrain::io {
namespace {

// Four rounds look random to those who see few outputs (Luby and Rackoff); an epoch shows all. With
// 24 all permutations of few samples, where bias is largest, are equally likely in the test; with
// 12 they are not. They take 0.7 us a sample.
constexpr std::uint64_t rounds = 24;

/// A random function of `input`, another one for each (seed, epoch, round), with values below
/// `bound`.
std::uint64_t mix(std::uint64_t seed, std::uint32_t epoch, std::uint64_t round, std::uint64_t input,
                  std::uint64_t bound) {
  const auto words =
      Philox(seed, Purpose::order, epoch, round).at(static_cast<std::uint32_t>(input));
  return (std::uint64_t{words[0]} << 32 | words[1]) % bound;
}

}  // namespace

Sampler::Sampler(std::uint64_t size, std::uint64_t seed) : size_(size), seed_(seed) {
  expects(size > 0, "an order needs at least one sample");
  // An even number of rows: shifts along odd sides make even permutations only.
  rows_ = 2 * static_cast<std::uint64_t>(std::ceil(std::sqrt(static_cast<double>(size)) / 2));
  columns_ = (size + rows_ - 1) / rows_;
}

Sampler::Draw Sampler::at(std::uint64_t position) const {
  const auto epoch = static_cast<std::uint32_t>(position / size_);
  return {epoch, shuffled(epoch, position % size_)};
}

// The grid has fewer than `rows` places too many. Walking on from such a place along the
// permutation's cycle stays a permutation of the others, and is rarely needed.
std::uint64_t Sampler::shuffled(std::uint32_t epoch, std::uint64_t index) const {
  do index = permuted(epoch, index);
  while (index >= size_);
  return index;
}

// A Feistel network on the places of a rows x columns grid (Black and Rogaway, "Ciphers with
// arbitrary finite domains", CT-RSA 2002): each round shifts one coordinate by a random function of
// the other, which can be undone, so the whole is a permutation.
std::uint64_t Sampler::permuted(std::uint32_t epoch, std::uint64_t index) const {
  std::uint64_t row = index / columns_, column = index % columns_;
  for (std::uint64_t round = 0; round < rounds; round += 2) {
    row = (row + mix(seed_, epoch, round, column, rows_)) % rows_;
    column = (column + mix(seed_, epoch, round + 1, row, columns_)) % columns_;
  }
  return row * columns_ + column;
}

}  // namespace ringtrain::io
