#include "ringtrain/allreduce/communicator/half_communicator.hpp"

#include <cmath>
#include <numeric>
#include <vector>

#include "ringtrain/allreduce/communicator/gradient_reducer.hpp"
#include "ringtrain/allreduce/make_communicator.hpp"
#include "support/catch.hpp"

using namespace ringtrain;
using namespace ringtrain::allreduce;

namespace {

// Three equal ranks; whole numbers stand for what is rounded. Nothing is done before finish().
struct EqualRanks final : Communicator, Rounding {
  int rank() const override { return 0; }
  int size() const override { return 3; }
  Memory& memory() override { return host; }
  void broadcast(View, int) override {}
  void start_sum(View view) override { sums.push_back(view); }
  void start_average(NarrowView view) override {
    CHECK(view.data() == just_rounded);
    averages.push_back(view);
  }
  void finish() override {
    for (const View& view : sums)
      for (float& value : view.host()) value *= 3;
    ++finished;
  }
  void cancel() noexcept override { ++cancelled; }

  void round(float factor, View values, NarrowView rounded) override {
    CHECK(values.size() == rounded.size());
    just_rounded = rounded.data();
    for (std::size_t i = 0; i < values.size(); ++i)
      rounded.data()[i] = static_cast<std::uint16_t>(factor * values.data()[i] + 0.5f);
  }
  void widen(NarrowView rounded, View values) override {
    CHECK(finished == 1);
    for (std::size_t i = 0; i < values.size(); ++i)
      values.data()[i] = static_cast<float>(rounded.data()[i]);
  }

  HostMemory host;
  std::vector<View> sums;
  std::vector<NarrowView> averages;
  const std::uint16_t* just_rounded = nullptr;
  int finished = 0, cancelled = 0;
};

}  // namespace

TEST_CASE("NarrowCommunicator: gradients are rounded and averaged, the head is summed as it is") {
  const std::size_t head = 4;
  const auto [gradients, buckets] =
      GENERATE(table<std::size_t, std::size_t>({{0, 0}, {1, 1}, {7, 2}, {8, 3}}));
  CAPTURE(gradients);
  std::vector<float> values(head + gradients);
  std::iota(values.begin(), values.end(), 1.1f);
  EqualRanks ranks;
  HalfCommunicator narrow(ranks, ranks, Element::bf16, {values.data(), values.size()}, head);

  GradientReducer reducer(narrow, {values.data(), values.size()}, 3 * sizeof(float));
  for (std::size_t first = values.size(); first > head + 1; --first) reducer.final_from(first);
  reducer.finish();

  for (std::size_t i = 0; i < values.size(); ++i) {
    const float sum = 3 * (1.1f + static_cast<float>(i));
    CHECK(values[i] == (i < head ? Approx(sum) : Approx(std::floor(sum + 0.5f))));
  }
  REQUIRE(ranks.sums.size() == 1);
  CHECK(ranks.sums[0].data() == values.data());
  CHECK(ranks.sums[0].size() == head);
  std::size_t end = gradients;  // each gradient once, the tail first
  for (const NarrowView& view : ranks.averages) {
    CHECK(view.element() == Element::bf16);
    CHECK(view.data() == ranks.averages.back().data() + (end - view.size()));
    end -= view.size();
  }
  CHECK(end == 0);
  CHECK(ranks.averages.size() == buckets);
}

TEST_CASE("NarrowCommunicator: sums that are given up are given up for all") {
  std::vector<float> values(6);
  EqualRanks ranks;
  HalfCommunicator narrow(ranks, ranks, Element::fp16, {values.data(), values.size()}, 2);

  { GradientReducer(narrow, {values.data(), values.size()}, 4).final_from(4); }

  CHECK(ranks.cancelled == 1);
}

TEST_CASE("communicators between CPUs refuse 16-bit numbers") {
  std::uint16_t number = 0;

  CHECK_THROWS_WITH(make_solo_communicator()->start_average({Element::fp16, &number, 1}),
                    Catch::Contains("16 bits") && Catch::Contains("fp32"));
}
