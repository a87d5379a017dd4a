#include "allreduce/compression/topk.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "allreduce/compression/compressor.hpp"
#include "ringtrain/base/error.hpp"

namespace ringtrain::allreduce {

namespace {

static_assert(sizeof(IndexedValue) == 2 * sizeof(float));

// Each host sends the largest of its own values, every host adds up what all have sent, in order of
// the hosts.
class TopK final : public Compressor {
 public:
  TopK(const Compression& how, std::span<const GradientMatrix> matrices, int threads);
  void allreduce(std::span<const Piece> pieces, Ring& ring) override;
  void accept() override { left_over_.accept(); }
  void scale(float factor) override { left_over_.scale(factor); }
  std::size_t size() const override { return left_over_.kept().size(); }
  void read(std::span<float> values, float factor) const override {
    expects(values.size() == size(), "CompressionState: as many numbers");
    left_over_.read(values, factor);
  }
  void write(std::span<const float> values) override {
    expects(values.size() == size(), "CompressionState: as many numbers");
    std::ranges::copy(values, left_over_.kept().begin());
  }

 private:
  struct Tensor {
    std::size_t count, kept;  // kept 0: travels as it is
  };

  void gather_largest(std::span<const Piece> pieces, Ring& ring);
  void add_up(std::span<const Piece> pieces, std::size_t hosts) const;
  void sum_others(std::span<const Piece> pieces, Ring& ring);

  std::vector<Tensor> tensors_;
  const int threads_;
  ErrorFeedback left_over_;
  std::vector<IndexedValue> taken_;
  std::vector<float> blocks_;  // what each host sends
  PackedBuffer others_;
};

TopK::TopK(const Compression& how, std::span<const GradientMatrix> matrices, int threads)
    : threads_(threads), left_over_(how, matrices) {
  for (const GradientMatrix& matrix : matrices)
    tensors_.push_back({matrix.count(), kept_values(how, matrix)});
}

void TopK::allreduce(std::span<const Piece> pieces, Ring& ring) {
  gather_largest(pieces, ring);
  add_up(pieces, static_cast<std::size_t>(ring.size()));
  sum_others(pieces, ring);
}

void TopK::gather_largest(std::span<const Piece> pieces, Ring& ring) {
  std::vector<std::size_t> places{0};
  for (const Piece& piece : pieces) places.push_back(places.back() + tensors_[piece.matrix].kept);
  taken_.resize(places.back());
  for_each_piece(pieces.size(), threads_, [&](std::size_t p) {
    const std::span taken = std::span(taken_).subspan(places[p], places[p + 1] - places[p]);
    if (!taken.empty()) select_topk(left_over_.add_to(pieces[p].matrix, pieces[p].values), taken);
  });
  const std::size_t block = 2 * taken_.size();
  blocks_.resize(block * static_cast<std::size_t>(ring.size()));
  std::memcpy(blocks_.data() + block * static_cast<std::size_t>(ring.rank()), taken_.data(),
              block * sizeof(float));
  ring.gather(blocks_);
}

void TopK::add_up(std::span<const Piece> pieces, std::size_t hosts) const {
  const std::size_t block = blocks_.size() / hosts;
  std::size_t at = 0;  // in a block
  for (const Piece& piece : pieces) {
    const Tensor& tensor = tensors_[piece.matrix];
    if (tensor.kept == 0) continue;
    std::fill_n(piece.values, tensor.count, 0.0f);
    for (std::size_t host = 0; host < hosts; ++host)
      for (std::size_t k = 0; k < tensor.kept; ++k) {
        const float* const sent = &blocks_[host * block + at + 2 * k];
        piece.values[std::bit_cast<std::uint32_t>(sent[0])] += sent[1];
      }
    at += 2 * tensor.kept;
  }
}

void TopK::sum_others(std::span<const Piece> pieces, Ring& ring) {
  const auto count = [&](const Piece& piece) {
    const Tensor& tensor = tensors_[piece.matrix];
    return tensor.kept == 0 ? tensor.count : 0;
  };
  others_.clear();
  for (const Piece& piece : pieces)
    std::copy_n(piece.values, count(piece), others_.add(count(piece)).begin());
  ring.allreduce(others_.numbers());
  for (std::size_t p = 0; p < pieces.size(); ++p)
    std::copy_n(others_.of(p), count(pieces[p]), pieces[p].values);
}

}  // namespace

std::unique_ptr<Compressor> make_topk(const Compression& how,
                                      std::span<const GradientMatrix> matrices, int threads) {
  return std::make_unique<TopK>(how, matrices, threads);
}

namespace {

// Ordered as the sizes are, NaN behind infinity.
std::uint32_t size_bits(float value) { return std::bit_cast<std::uint32_t>(value) & 0x7fffffffu; }

// The bits of the count-th largest, and how many as large as that are among the first `count`.
struct Threshold {
  std::uint32_t bits = 0;
  std::size_t equal = 0;
};

constexpr int low_bits = 20;  // below an exponent and three bits of the number

// How many values have each of the upper bits. Neighbours are often alike, and a counter is slow to
// be raised twice in a row: hence four.
std::array<std::size_t, 0x800> histogram(std::span<const float> values) {
  std::array<std::array<std::uint32_t, 4>, 0x800> counters{};
  for (std::size_t i = 0; i < values.size(); ++i)
    ++counters[size_bits(values[i]) >> low_bits][i % 4];
  std::array<std::size_t, 0x800> counts{};
  for (std::size_t d = 0; d < counts.size(); ++d)
    for (const std::uint32_t counter : counters[d]) counts[d] += counter;
  return counts;
}

Threshold threshold_of(std::span<const float> values, std::size_t count) {
  const auto counts = histogram(values);
  std::size_t upper = counts.size() - 1, left = count;  // to find among those with these upper bits
  for (; counts[upper] < left; --upper) left -= counts[upper];
  std::vector<std::uint32_t> alike;
  alike.reserve(counts[upper]);
  for (const float value : values)
    if (size_bits(value) >> low_bits == upper) alike.push_back(size_bits(value));
  const auto last = alike.begin() + static_cast<std::ptrdiff_t>(left) - 1;
  std::ranges::nth_element(alike, last, std::greater{});
  const auto larger = std::count_if(alike.begin(), last, [&](auto bits) { return bits > *last; });
  return {*last, left - static_cast<std::size_t>(larger)};
}

}  // namespace

void select_topk(std::span<float> values, std::span<IndexedValue> taken) {
  expects(
      taken.size() <= values.size() && values.size() <= std::numeric_limits<std::uint32_t>::max(),
      "take_largest: no more than there are, whose places fit 32 bits");
  if (taken.empty()) return;
  auto [bits, equal] = threshold_of(values, taken.size());
  auto next = taken.begin();
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint32_t size = size_bits(values[i]);
    if (size < bits || (size == bits && equal == 0)) continue;
    if (size == bits) --equal;
    *next++ = {static_cast<std::uint32_t>(i), std::exchange(values[i], 0.0f)};
  }
}

}  // namespace ringtrain::allreduce
