#include "ringtrain/compute/memory_plan.hpp"

#include "support/catch.hpp"

using namespace ringtrain;
using namespace ringtrain::compute;

namespace {

// A chain of n ReLUs: tensor i -> tensor i + 1.
Schedule chain(int n) {
  Schedule schedule;
  schedule.tensors.assign(n + 1, Shape{1, 1, 1, 16});
  for (TensorId i = 0; i < n; ++i) schedule.steps.push_back(Pointwise{Activation::relu, i, i + 1});
  return schedule;
}

bool overlap(const MemoryPlan& plan, const std::vector<std::size_t>& bytes, int a, int b) {
  return plan.offset[a] < plan.offset[b] + bytes[b] && plan.offset[b] < plan.offset[a] + bytes[a];
}

}  // namespace

TEST_CASE("plan_memory: a chain needs only its two largest neighbours at once") {
  const std::vector<std::size_t> bytes{64, 640, 128, 64, 320, 320};

  const MemoryPlan plan = plan_memory(chain(5), bytes);

  CHECK(plan.bytes == 640 + 128);
  for (int i = 0; i < 5; ++i) CHECK_FALSE(overlap(plan, bytes, i, i + 1));
}

TEST_CASE("plan_memory: offsets are aligned and a tensor needed later stays untouched") {
  Schedule schedule = chain(4);
  schedule.steps.push_back(Add{0, 4, 4});
  const std::vector<std::size_t> bytes{100, 3, 70, 70, 100};

  const MemoryPlan plan = plan_memory(schedule, bytes);

  for (int i = 1; i <= 4; ++i) CHECK_FALSE(overlap(plan, bytes, 0, i));
  for (const std::size_t offset : plan.offset) CHECK(offset % 64 == 0);
}

TEST_CASE("plan_memory: tensors that no step touches take no room") {
  Schedule schedule = chain(1);
  schedule.tensors.push_back(Shape{1, 1, 1, 1});

  CHECK(plan_memory(schedule, std::vector<std::size_t>{64, 64, 1 << 20}).bytes == 128);
}

TEST_CASE("finality: what is final is the tail no later step writes") {
  Schedule schedule;
  schedule.parameters = 30;
  schedule.steps = {Pointwise{}, MatrixProductWeightGradient{0, 0, {20, 8}, ParameterRange{28, 2}},
                    MatrixProductInputGradient{}, ConvolutionWeightGradient{{}, 0, 0, {10, 10}},
                    ConvolutionWeightGradient{{}, 0, 0, {0, 10}}};

  CHECK(finality(schedule) == std::vector<std::size_t>{30, 20, 20, 10, 0});
}
