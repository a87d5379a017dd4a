// The head of the summed buffer against the host's.
#include <limits>

#include "compute/cuda/kernels/device/head_work.hpp"
#include "compute/cuda/kernels/device/update/optimizer_work.hpp"
#include "support/kernel_case.hpp"
#include "train/sums/reduction_buffer.hpp"
#include "unit/compute/cuda/kernel_inputs.hpp"

using namespace ringtrain;
using namespace ringtrain::compute;
using namespace ringtrain::compute::cuda::kernels;

TEST_CASE("cuda kernels: the head of a step is the host's") {
  const std::size_t statistics = GENERATE(0, 1, 15, 16, 17, 600);
  const int signal = GENERATE(-1, 0, 15);  // -1: nobody asks to stop
  CAPTURE(statistics, signal);
  HostMemory memory;
  train::ReductionBuffer host(memory, 3, statistics);
  const std::size_t floats = host.place_of(0);
  std::vector<float> head(floats + 3, NAN), weight{0.125f}, share{0.3f};
  const std::vector<StepFlags> flags{{signal < 0 ? 0.f : 1.f, signal > 0 ? 1.f : 0.f,
                                      signal > 0 ? float(signal) : 0.f, signal == 15 ? 1.f : 0.f,
                                      signal == 0 ? 1.f : 0.f, signal == 15 ? 1.f : 0.f}};
  std::ranges::fill(host.all().host(), NAN);
  host.clear_head();
  if (signal >= 0) host.ask({true, signal, signal == 15, signal == 0, signal == 15});

  run_twice({bytes_of_values(head)},
            [&](auto& queue) { work::begin_head(head.data(), floats, flags.data(), queue); });
  for (int micro_step = 0; micro_step < 2; ++micro_step) {
    std::vector<float> values = random_floats(statistics, micro_step);
    const std::vector<LossTotals> totals{{2.7 + micro_step, 8, 3 + micro_step, 7}};
    host.add({.loss = totals[0].loss, .samples = 8, .top1 = totals[0].top1, .top5 = 7},
             {values.data(), statistics}, weight[0], share[0]);
    run_twice({bytes_of_values(head)}, [&](auto& queue) {
      work::add_to_head(head.data(), statistics, totals.data(), values.data(), weight.data(),
                        share.data(), queue);
    });
  }

  const std::span<const float> expected = host.all().host();
  for (std::size_t i = 0; i < floats; ++i) CHECK(head[i] == Approx(expected[i]).epsilon(1e-6));
  for (std::size_t i = floats; i < head.size(); ++i) CHECK(std::isnan(head[i]));
}

TEST_CASE("cuda kernels: a loss that is not finite spoils the step") {
  const float loss = GENERATE(1.f, NAN, std::numeric_limits<float>::infinity());
  std::vector<float> head(step_results, 3);
  head[0] = loss;
  head[1] = NAN;  // not asked about
  std::vector<UpdateState> state(1);

  run_twice({bytes_of_values(state)}, [&](auto& queue) {
    work::begin_update(state.data(), queue);
    work::mark_not_finite(Element::fp32, 1, head.data(), state.data(), queue);
  });

  CHECK(state[0].not_finite == !std::isfinite(loss));
}
