// compression_bench [ROWS COLUMNS]: what one host computes to compress a matrix of gradients and to
// expand the sum, without a network: milliseconds of one core, in turn, medians of 21 rounds.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "allreduce/compression/compressor.hpp"
#include "ringtrain/base/philox.hpp"

using namespace ringtrain;

namespace {

struct Alone final : allreduce::RingLink {
  int rank() const override { return 0; }
  int size() const override { return 1; }
  Ticket receive(std::span<float>) override { return 0; }
  Ticket send(std::span<const float>) override { return 0; }
  void wait_received(Ticket) override {}
  void wait_sent(Ticket) override {}
};

struct Way {
  std::string name;
  std::unique_ptr<allreduce::Compressor> compressor;
  std::vector<double> ms = {};
};

std::vector<Way> ways_for(const allreduce::GradientMatrix& matrix) {
  std::vector<Way> ways;
  for (const int rank : {1, 2, 4, 8})
    ways.push_back({fmt::format("powersgd:{}", rank),
                    allreduce::make_powersgd({allreduce::Compression::Kind::powersgd, rank, 0},
                                             {&matrix, 1})});
  for (const double ratio : {0.001, 0.01, 0.1})
    ways.push_back(
        {fmt::format("topk:{}", ratio),
         allreduce::make_topk({allreduce::Compression::Kind::topk, 0, ratio}, {&matrix, 1})});
  return ways;
}

double sum_ms(allreduce::Compressor& compressor, std::vector<float> values) {
  Alone link;
  allreduce::Ring ring(link);
  const allreduce::Piece piece{0, values.data()};
  const auto begin = std::chrono::steady_clock::now();
  compressor.allreduce({&piece, 1}, ring);
  compressor.accept();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
      .count();
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t rows = argc > 2 ? std::stoul(argv[1]) : 384;
  const std::size_t columns = argc > 2 ? std::stoul(argv[2]) : 2304;
  const allreduce::GradientMatrix matrix{0, rows, columns};
  std::vector<float> values(matrix.count());
  Philox random(1, Purpose::synthetic);
  for (float& value : values) value = static_cast<float>(random.normal());
  std::vector<Way> ways = ways_for(matrix);
  for (int round = 0; round < 21; ++round)
    for (Way& way : ways) way.ms.push_back(sum_ms(*way.compressor, values));
  fmt::print("{} x {}, {:.1f} MB\n", rows, columns, 4e-6 * double(matrix.count()));
  for (Way& way : ways) {
    std::ranges::sort(way.ms);
    fmt::print("{:<12} {:7.2f} ms\n", way.name, way.ms[way.ms.size() / 2]);
  }
}
