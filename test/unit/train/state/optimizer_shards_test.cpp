#include <numeric>

#include "support/catch.hpp"
#include "train/state/training_state.hpp"

using namespace ringtrain;
using namespace ringtrain::train;

namespace {

// Of two ranks, the first completes two thirds of each sum.
class Uneven final : public allreduce::Communicator {
 public:
  Uneven() : allreduce::Communicator({.rank = 1, .size = 2, .own_parts = two_thirds}) {}
  Memory& memory() override { return memory_; }
  void broadcast(View, int) override {}
  void start_allreduce(View, const allreduce::SumOptions&) override {}
  void finish() override {}

 private:
  static std::vector<Range> two_thirds(std::span<const std::size_t> counts, int rank) {
    std::vector<Range> parts;
    for (const std::size_t count : counts) {
      const std::size_t cut = count * 2 / 3;
      parts.push_back(rank == 0 ? Range{0, cut} : Range{cut, count - cut});
    }
    return parts;
  }

  HostMemory memory_;
};

}  // namespace

TEST_CASE("shards: each rank has what it completes of the sums, but for their head") {
  const Shards shards = make_shards(Uneven(), std::vector<std::uint64_t>{0, 30, 33, 34}, 5);

  CHECK(shards.ranges[0] == std::vector<Range>{{0, 15}, {25, 2}});
  CHECK(shards.own() == std::vector<Range>{{15, 10}, {27, 1}, {28, 1}});
  CHECK(shards.size_of(0) == 17);
  CHECK(shards.size_of(1) == 12);
  CHECK(make_shards(Uneven(), std::vector<std::uint64_t>{0, 3, 9}, 4).ranges[0] ==
        std::vector<Range>{{0, 3}});  // of the first sum all is head
}

TEST_CASE("shards: what is packed from pieces of any size is unpacked to its places") {
  const std::vector<Range> ranges{{1, 3}, {5, 1}, {8, 4}};
  std::vector<float> whole(13);
  std::iota(whole.begin(), whole.end(), 100.0f);
  const std::size_t most =
      GENERATE(std::size_t{1}, std::size_t{2}, std::size_t{5}, std::size_t{13});
  std::vector<float> packed(8), again(13, -1.0f);

  for (std::size_t first = 0; first < whole.size(); first += most)
    pack(std::span(whole).subspan(first, std::min(most, whole.size() - first)), first, ranges,
         packed);
  unpack(packed, ranges, again);

  CHECK(packed == std::vector<float>{101, 102, 103, 105, 108, 109, 110, 111});
  CHECK(again == std::vector<float>{-1, 101, 102, 103, -1, 105, -1, -1, 108, 109, 110, 111, -1});
}
