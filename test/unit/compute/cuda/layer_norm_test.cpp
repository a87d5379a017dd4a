// LayerNorm against the reference.
#include "compute/cuda/kernels/device/layer_norm_work.hpp"
#include "support/kernel_case.hpp"
#include "unit/compute/cuda/kernel_inputs.hpp"

using namespace ringtrain;
using namespace ringtrain::compute;
using namespace ringtrain::compute::cuda::kernels;

TEST_CASE("cuda kernels: LayerNorm agrees with the reference, also where dx lies over dy") {
  const Element element = any_element();
  const int channels = GENERATE(1, 3, 8, 17, 40, 96, 768), pixels = GENERATE(1, 7, 35);
  const bool aligned = GENERATE(true, false);
  CAPTURE(element, channels, pixels, aligned);
  const std::size_t count = channels;
  const Shape s{2, pixels, 1, channels};
  const ParameterRange gamma{0, count}, beta{count, count};
  Schedule schedule = schedule_of({s, s, s, s});
  schedule.parameters = 2 * count;
  enum : TensorId { x, dy, y, dx };
  KernelCase c(element, schedule, y, [](double v) { return 2 * v + 1; });
  if (!aligned)
    for (const TensorId id : {0, 1, 2, 3}) c.misalign(id);
  std::vector<float> parameters(2 * count), gradients(2 * count), workspace(100'000);
  Philox random(3, Purpose::initialise);
  for (std::size_t i = 0; i < 2 * count; ++i)
    c.state.parameters[i] = parameters[i] = static_cast<float>(random.normal());
  const LayerNormOperands o{element, s.pixels(), count, parameters.data(), &parameters[count],
                            0.01f,   c[x]};
  REQUIRE(work::moments_bytes(o.pixels) + sums_workspace(o.pixels, count, 2) <=
          workspace.size() * sizeof(float));

  c.check(LayerNormForward{x, y, gamma, beta, 0.01f}, {y},
          [&](auto& queue) { work::layer_norm_forward(o, c[y], queue); });
  const auto backward = [&](void* from, void* to) {
    return [&, from, to](auto& queue) {
      work::layer_norm_backward(o, from, to, gradients.data(), &gradients[count], workspace.data(),
                                queue);
    };
  };
  c.check(LayerNormBackward{x, dy, dx, gamma, beta, 0.01f}, {dx}, backward(c[dy], c[dx]));
  const auto expected = c.state.gradients;
  CHECK(relative_norm(gradients, std::span(expected).first(2 * count)) < 1e-4);
  const auto apart = c.read(dx);
  c.run_kernel({dy}, backward(c[dy], c[dy]));
  CHECK(c.read(dy) == apart);
}
