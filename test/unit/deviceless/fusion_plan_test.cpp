#include "ringtrain/compute/gpu_planner.hpp"
#include "support/catch.hpp"

using namespace ringtrain;

namespace {

constexpr compute::TensorId x = 0, y = 1, residual = 2, written = 3;

// A convolution of 3x3 or 1x1 pixels on 32 images, and what may stand around it.
struct Case {
  int channels = 64, kernel = 3;
  compute::Schedule schedule() const {
    compute::Schedule s;
    const compute::Shape shape{32, 14, 14, channels};
    s.tensors = {shape, shape, shape, shape};
    s.vectors = std::vector<int>(8, channels);
    s.batch = 32;
    return s;
  }
  compute::Window window() const {
    const int pad = kernel / 2;
    return {kernel, kernel, 1, 1, pad, pad, pad, pad};
  }
  compute::ConvolutionForward forward() const { return {window(), x, y, weights()}; }
  compute::ParameterRange weights() const {
    return {0, std::size_t(channels) * channels * kernel * kernel};
  }
};

bool supported(Element element, const Case& at, const compute::Step& step,
               bool deterministic = false) {
  return compute::make_gpu_planner(compute::gpu_model("h100"), element, deterministic)
      ->supports(at.schedule(), step);
}

}  // namespace

TEST_CASE("statistics of a convolution's result are fused in fp16 and nowhere else") {
  compute::ConvolutionForward step = Case{}.forward();
  step.sums = 0;

  CHECK(supported(Element::fp16, {}, step));
  CHECK(!supported(Element::fp16, {}, step, true));  // --deterministic
  CHECK(!supported(Element::bf16, {}, step));
  CHECK(!supported(Element::fp32, {}, step));
  CHECK(!supported(Element::fp16, {.channels = 12}, step));
}

TEST_CASE("a residual is added before convolutions of one pixel only") {
  const int kernel = GENERATE(1, 3);
  const Case at{.kernel = kernel};
  compute::ConvolutionForward step = at.forward();
  step.sums = 0;
  step.prologue = compute::AppliedNorm{
      .scale = 1, .bias = 2, .residual = residual, .then = compute::Activation::relu, .y = written};

  CHECK(supported(Element::fp16, at, step) == (kernel == 1));
}

TEST_CASE("a ReLU's mask is made anew, because cuDNN reads none") {
  compute::ConvolutionInputGradient step{Case{}.window(), y, compute::no_tensor, Case{}.weights()};
  step.epilogue =
      compute::BatchNormSums{.x = x, .g = written, .then = compute::Activation::relu, .beta = {}};

  CHECK(supported(Element::fp16, {}, step));
  step.epilogue->residual = residual;
  CHECK(supported(Element::fp16, {}, step));
  step.epilogue->residual = compute::no_tensor;
  step.epilogue->y = residual;
  CHECK(!supported(Element::fp16, {}, step));
}

TEST_CASE("a max pool takes a BatchNorm in, in every type, and makes no mask from a residual") {
  const Element element = GENERATE(Element::fp16, Element::bf16, Element::fp32);
  const compute::AppliedNorm activation{.scale = 1, .bias = 2, .then = compute::Activation::relu};
  compute::MaxPoolBackward step{
      Case{}.window(),    x,         compute::no_tensor, y, compute::no_tensor,
      compute::no_tensor, activation};
  step.epilogue =
      compute::BatchNormSums{.x = x, .g = written, .then = compute::Activation::relu, .beta = {}};

  CHECK(supported(element, {}, compute::MaxPoolForward{Case{}.window(), x, y, activation}));
  CHECK(supported(element, {}, step));
  step.epilogue->residual = residual;
  CHECK(!supported(element, {}, step));
}

TEST_CASE("the gradient of a max pool reads a byte a window, and x only for what is fused") {
  compute::Schedule schedule = Case{}.schedule();
  const std::size_t tensor = 32 * 14 * 14 * 64 * 2;
  compute::MaxPoolBackward fused{Case{}.window(),    x,       compute::no_tensor, y,
                                 compute::no_tensor, residual};
  fused.epilogue =
      compute::BatchNormSums{.x = x, .g = written, .then = compute::Activation::relu, .beta = {}};
  schedule.steps = {compute::MaxPoolBackward{Case{}.window(), x, residual, y, written}, fused};

  const compute::GpuPlan plan =
      compute::make_gpu_planner(compute::gpu_model("h100"), Element::fp16)->plan(schedule);

  CHECK(plan.steps.at(0).at(0).bytes_read == tensor + tensor / 2);
  CHECK(plan.steps.at(1).at(0).bytes_read == 3 * tensor + tensor / 2);
  for (const auto& launches : plan.steps) CHECK(launches.at(0).bytes_written == tensor);
}

TEST_CASE("a bias that cuDNN does not add is added by a kernel of ours") {
  compute::Schedule schedule = Case{}.schedule();
  compute::ConvolutionForward step = Case{}.forward();
  step.b = compute::ParameterRange{1, 64};
  step.then = compute::Activation::relu;
  schedule.steps = {step};
  schedule.backward = 1;

  const compute::GpuPlan plan =
      compute::make_gpu_planner(compute::gpu_model("h100"), Element::fp16)->plan(schedule);

  REQUIRE(plan.steps.size() == 1);
  const std::size_t tensor = 32 * 14 * 14 * 64 * 2, weights = 64 * 9 * 64 * 2;
  CHECK(plan.steps[0].at(0).bytes_written == tensor);
  CHECK(plan.steps[0].at(0).bytes_read == tensor + weights);
}

TEST_CASE("an unknown GPU is refused with the names that are known") {
  CHECK_THROWS_WITH(compute::gpu_model("h300"), Catch::Contains("h100, h200"));
}
