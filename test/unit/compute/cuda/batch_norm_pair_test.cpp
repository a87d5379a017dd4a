#include "compute/cuda/kernels/device/batch_norm_work.hpp"
#include "support/kernel_case.hpp"

using namespace ringtrain;
using namespace ringtrain::compute;
using namespace ringtrain::compute::cuda::kernels;

TEST_CASE("cuda kernels: two BatchNorms behind one gradient agree with the reference") {
  enum : TensorId { g, x, x2, dx, dx2, last_tensor };
  const Element element = GENERATE(Element::fp32, Element::fp16, Element::bf16);
  const int channels = GENERATE(1, 3, 8, 17, 64, 264), batch = GENERATE(1, 3);
  const bool in_place = GENERATE(false, true);
  CAPTURE(element, channels, batch, in_place);
  Schedule schedule = schedule_of(std::vector<Shape>(last_tensor, {batch, 19, 17, channels}));
  schedule.vectors.assign(6, channels);  // g_scale, x_scale, shift of each
  KernelCase c(element, schedule, dx);
  std::vector<std::vector<float>> vectors(6, std::vector<float>(channels));
  for (std::size_t id = 0; id < vectors.size(); ++id) {
    Philox random(100 + id, Purpose::initialise);
    for (int i = 0; i < channels; ++i)
      c.state.vectors[id][i] = vectors[id][i] = static_cast<float>(random.normal());
  }
  const TensorId written = in_place ? g : dx;
  const BatchNormBackwardApply step{g, x, written, 0, 1, 2, x2, dx2, 3, 4, 5};
  const auto operands = [&](TensorId input, TensorId output, int first) {
    return BatchNormBackwardApplyOperands{element,
                                          c.pixels(g),
                                          c.channels(g),
                                          c[g],
                                          c[input],
                                          c[output],
                                          vectors[first].data(),
                                          vectors[first + 1].data(),
                                          vectors[first + 2].data()};
  };

  c.check(step, {written, dx2}, [&](auto& queue) {
    work::batch_norm_backward_apply_pair(operands(x, written, 0), operands(x2, dx2, 3), queue);
  });
}
