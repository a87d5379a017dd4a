// Depthwise convolutions against the reference: each of the filters that have kernels of their own.
#include "compute/cuda/kernels/device/grouped_convolution_work.hpp"
#include "support/kernel_case.hpp"
#include "support/step_cases.hpp"
#include "unit/compute/cuda/kernel_inputs.hpp"

using namespace ringtrain;
using namespace ringtrain::compute;
using namespace ringtrain::compute::cuda::kernels;

namespace {

/// The three steps of a depthwise convolution, on numbers of `element`.
struct Depthwise {
  GroupedConvolution c;
  std::size_t weights, channels;
  KernelCase tensors;
  std::vector<float> parameters, gradients, workspace;

  enum : TensorId { x, dy, y, dx };
  static Schedule schedule(const ConvolutionShape& window, const Shape& in) {
    const StepCase steps =
        convolution_case(window, in, in.channels, 0, true, Activation::hard_swish);
    Schedule schedule = schedule_of(steps.tensors);
    schedule.parameters = steps.parameters;
    return schedule;
  }

  Depthwise(Element element, const ConvolutionShape& window, const Shape& in)
      : c{element, window, in, after(window, in, in.channels)},
        weights(std::size_t(in.channels) * window.height * window.width),
        channels(in.channels),
        tensors(element, schedule(window, in), y),
        parameters(weights + channels),
        gradients(weights),
        workspace(work::grouped_workspace(c) / sizeof(float)) {
    Philox random(7, Purpose::initialise);
    for (std::size_t i = 0; i < parameters.size(); ++i)
      tensors.state.parameters[i] = parameters[i] = static_cast<float>(random.normal());
  }

  void check() {
    const ParameterRange w{0, weights}, b{weights, channels};
    const float* bias = parameters.data() + weights;
    tensors.check(ConvolutionForward{c.window, x, y, w, b, Activation::hard_swish}, {y},
                  [&](auto& queue) {
                    work::grouped_convolution_forward(c, tensors[x], parameters.data(), bias,
                                                      Activation::hard_swish, tensors[y],
                                                      workspace.data(), queue);
                  });
    tensors.check(ConvolutionInputGradient{c.window, dy, dx, w}, {dx}, [&](auto& queue) {
      work::grouped_convolution_input_gradient(c, tensors[dy], parameters.data(), tensors[dx],
                                               workspace.data(), queue);
    });
    run_twice({bytes_of_values(gradients)}, [&](auto& queue) {
      work::grouped_convolution_weight_gradient(c, tensors[x], tensors[dy], gradients.data(),
                                                workspace.data(), queue);
    });
    reference::run_step(ConvolutionWeightGradient{c.window, x, dy, w}, tensors.state);
    const std::span expected = std::span(tensors.state.gradients).first(weights);
    CHECK(relative_norm(gradients, expected) < 1e-5);
  }
};

}  // namespace

TEST_CASE("cuda kernels: depthwise convolutions agree with the reference") {
  const Element element = any_element();
  const int size = GENERATE(3, 5, 7), step = GENERATE(1, 2);
  const int before = GENERATE(0, 1, 2, 3);
  const int width = GENERATE(7, 8, 13);
  if (before >= size) return;
  CAPTURE(element, size, step, before, width);
  const int after = size - 1 - before;
  const Window window{size, size, step, step, before, after, before, after};

  Depthwise steps(element, {window, 24}, {2, 9, width, 24});
  CHECK(work::is_depthwise(steps.c, {steps.tensors[0], steps.tensors[2]}));
  steps.check();
}

TEST_CASE("cuda kernels: depthwise convolutions of images smaller than the filter") {
  const Element element = any_element();
  const int size = GENERATE(5, 7), step = GENERATE(1, 2), width = GENERATE(1, 2, 3);
  CAPTURE(element, size, step, width);
  const int border = size / 2;

  Depthwise steps(element, {Window{size, size, step, step, border, border, border, border}, 8},
                  {3, 2, width, 8});
  CHECK(work::is_depthwise(steps.c, {steps.tensors[0], steps.tensors[2]}));
  steps.check();
}

TEST_CASE("cuda kernels: depthwise convolutions of many blocks of threads") {
  const Element element = any_element();
  const int size = GENERATE(3, 7), step = GENERATE(1, 2);
  CAPTURE(element, size, step);
  const int border = size / 2;

  Depthwise(element, {Window{size, size, step, step, border, border, border, border}, 264},
            {7, 20, 21, 264})
      .check();
}

TEST_CASE("cuda kernels: depthwise convolutions of unaligned tensors and odd channels") {
  const Element element = any_element();
  const int channels = GENERATE(6, 24);
  CAPTURE(element, channels);
  Depthwise steps(element, {Window{3, 3, 2, 2, 1, 1, 1, 1}, channels}, {2, 9, 11, channels});
  if (channels == 24)
    for (const TensorId id : {0, 1, 2, 3}) steps.tensors.misalign(id);

  CHECK_FALSE(work::is_depthwise(steps.c, {steps.tensors[0], steps.tensors[2]}));
  steps.check();
}
