#include <cmath>
#include <numeric>
#include <vector>

#include "allreduce/nccl/nccl_communicator.hpp"
#include "support/catch.hpp"

using namespace ringtrain;
using namespace ringtrain::allreduce;

namespace {

// Whole numbers stand for what is rounded.
struct WholeNumbers final : Rounding {
  void round(float factor, View values, NarrowView rounded) override {
    CHECK(values.size() == rounded.size());
    for (std::size_t i = 0; i < values.size(); ++i)
      rounded.data()[i] = static_cast<std::uint16_t>(factor * values.data()[i] + 0.5f);
  }
  void widen(NarrowView rounded, View values) override {
    widened.push_back(values.size());
    for (std::size_t i = 0; i < values.size(); ++i)
      values.data()[i] = static_cast<float>(rounded.data()[i]);
  }

  std::vector<std::size_t> widened;
};

struct Rig {
  View view(std::size_t first, std::size_t count) {
    return View(values.data(), values.size()).slice(first, count);
  }

  std::vector<float> values = [] {
    std::vector<float> all(8);
    std::iota(all.begin(), all.end(), 1.1f);
    return all;
  }();
  HostMemory memory;
  WholeNumbers rounding;
  HalfBuffer halves{rounding, memory, 7};
};

}  // namespace

TEST_CASE("HalfBuffer: what was rounded, and summed since, comes back as fp32") {
  Rig rig;

  for (const auto& [first, count] : {std::pair{5, 3}, std::pair{1, 4}}) {
    const NarrowView halves = rig.halves.round(3, rig.view(first, count), Element::bf16);
    CHECK(halves.element() == Element::bf16);
    CHECK(halves.size() == static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < halves.size(); ++i) ++halves.data()[i];
  }
  rig.halves.widen();

  CHECK(rig.values[0] == 1.1f);
  for (std::size_t i = 1; i < 8; ++i)
    CHECK(rig.values[i] == std::floor(3 * (1.1f + static_cast<float>(i)) + 0.5f) + 1);
  CHECK(rig.rounding.widened == std::vector<std::size_t>{7});  // neighbours at once
}

TEST_CASE("HalfBuffer: numbers that lie apart are widened apart") {
  Rig rig;

  rig.halves.round(1, rig.view(0, 2), Element::fp16);
  rig.halves.round(1, rig.view(5, 2), Element::fp16);
  rig.halves.round(1, rig.view(3, 2), Element::bf16);
  rig.halves.widen();

  CHECK(rig.rounding.widened == std::vector<std::size_t>{2, 2, 2});
  CHECK(rig.values[0] == 1);
  CHECK(rig.values[2] == 3.1f);
  CHECK(rig.values[3] == 4);
  CHECK(rig.values[6] == 7);
}

TEST_CASE("HalfBuffer: there is room for so many numbers until they are widened") {
  Rig rig;
  rig.halves.round(1, rig.view(1, 7), Element::fp16);

  CHECK_THROWS_WITH(rig.halves.round(1, rig.view(0, 1), Element::fp16), Catch::Contains("room"));
  rig.halves.widen();
  CHECK_NOTHROW(rig.halves.round(1, rig.view(0, 7), Element::fp16));
  rig.halves.widen();
  rig.rounding.widened.clear();
  rig.halves.widen();

  CHECK(rig.rounding.widened.empty());
}
