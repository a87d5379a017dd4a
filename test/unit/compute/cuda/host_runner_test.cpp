#include <cuda_runtime_api.h>

#include "compute/cuda/engines/convolution.hpp"
#include "compute/cuda/engines/cudnn_runner.hpp"
#include "support/activations.hpp"
#include "support/catch.hpp"
#include "support/graph_operands.hpp"
#include "support/host_gpu/host_gpu.hpp"
#include "support/host_gpu/interpreter.hpp"
#include "support/host_gpu_case.hpp"

using namespace ringtrain;
using namespace ringtrain::compute;
using namespace ringtrain::compute::cuda;

namespace {

using enum ConvolutionProblem::Tensors;
using enum ConvolutionProblem::Vectors;

// Runs what cuDNN would be asked for, and the step on the reference; compares all that is written.
template <class Kind>
void check(const ConvolutionProblem& problem, const Kind& step, Element element) {
  host_gpu::set_seed(1);
  const Schedule schedule = problem.schedule();
  const OperationGraph graph = [&] {
    if constexpr (requires { request(schedule, step, element, true); })
      return request(schedule, step, element, true).graph();
    else
      return request(schedule, step, element).graph();
  }();
  const GpuStream stream;
  GraphOperands operands(problem, element);
  const std::vector<void*> data = operands.allocate(graph);
  const GpuValues workspace(64);
  const Engine engine{"none", workspace.bytes(),
                      Descriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)};
  const auto runner = make_cudnn_runner(stream);

  runner->bind(engine, graph, data, workspace.data())();
  REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
  reference::run_step(step, operands.state);

  operands.check_results(graph, data, tolerance(element));
  CHECK(host_gpu::counts().engines == 1);
  CHECK(host_gpu::complaints().empty());
}

Element any_element() { return GENERATE(Element::fp32, Element::fp16); }

ConvolutionProblem any_convolution() {
  const int in = GENERATE(8, 24), out = 16;
  return GENERATE_COPY(ConvolutionProblem{{3, 3, 1, 1, 1, 1, 1, 1}, {2, 7, 5, in}, {2, 7, 5, out}},
                       ConvolutionProblem{{3, 5, 2, 1, 0, 2, 1, 2}, {3, 8, 5, in}, {3, 4, 5, out}},
                       ConvolutionProblem{{1, 1, 2, 2, 0, 0, 0, 0}, {2, 6, 6, in}, {2, 3, 3, out}},
                       ConvolutionProblem{{}, {2, 6, 6, in}, {2, 6, 6, out}});
}

}  // namespace

TEST_CASE("host_gpu: a convolution's engine agrees with the reference") {
  const Element element = any_element();
  const ConvolutionProblem problem = any_convolution();
  const bool with_bias = GENERATE(false, true), relu = GENERATE(false, true);
  ConvolutionForward step{problem.window, x, y, problem.w()};
  if (with_bias) step.b = problem.b();
  step.then = relu_if(relu);

  check(problem, step, element);
}

TEST_CASE("host_gpu: a convolution between BatchNorms agrees with the reference") {
  const Element element = any_element();
  const ConvolutionProblem problem = any_convolution();
  const int kind = GENERATE(0, 1, 2, 3);  // no prologue, one, with residual, with scaled residual
  const bool with_sums = GENERATE(false, true);
  ConvolutionForward step{problem.window, x, y, problem.w()};
  if (with_sums) step.sums = sums;
  if (kind > 0) step.prologue = AppliedNorm{.scale = scale, .bias = bias, .then = Activation::relu};
  if (kind > 1) {
    step.prologue->residual = residual;
    if (problem.window == Window{}) step.prologue->y = written;
  }
  if (kind > 2) {
    step.prologue->residual_scale = residual_scale;
    step.prologue->residual_bias = residual_bias;
  }
  CAPTURE(element, kind, with_sums);

  check(problem, step, element);
}

TEST_CASE("host_gpu: an input gradient's engine agrees with the reference") {
  const Element element = any_element();
  const ConvolutionProblem problem = any_convolution();

  check(problem, ConvolutionInputGradient{problem.window, dy, dx, problem.w()}, element);
}

TEST_CASE("host_gpu: an input gradient and what BatchNorm wants of it agree with the reference") {
  const Element element = any_element();
  const ConvolutionProblem problem = any_convolution();
  const int mask = GENERATE(0, 1, 2, 3);  // from x, from y, with residual, with scaled residual
  const bool relu = GENERATE(false, true), with_skip = GENERATE(false, true);
  const bool with_gamma = mask == 3 || GENERATE(false, true);
  CAPTURE(element, mask, relu, with_skip, with_gamma);
  ConvolutionInputGradient step{problem.window, dy, no_tensor, problem.w()};
  BatchNormSums& how = step.epilogue.emplace(problem.epilogue());
  how.then = relu_if(relu);
  if (with_skip) how.skip = skip;
  if (mask == 1) how.y = written;
  if (mask == 1) how.g = dx;
  if (mask > 1) how.residual = residual;
  if (mask == 3) {
    how.residual_scale = residual_scale;
    how.residual_bias = residual_bias;
    step.epilogue_of_residual = problem.of_residual();
  }

  check(problem, step, element);
}

TEST_CASE("host_gpu: a weight gradient's engine agrees with the reference") {
  const Element element = any_element();
  const ConvolutionProblem problem = any_convolution();
  const bool with_prologue = GENERATE(false, true);
  ConvolutionWeightGradient step{problem.window, x, dy, problem.w()};
  if (with_prologue)
    step.prologue = AppliedNorm{.scale = scale, .bias = bias, .then = Activation::relu};

  check(problem, step, element);
}

TEST_CASE("host_gpu: channels that pad an image do not change the result") {
  const Element element = any_element();
  const ConvolutionProblem problem{{3, 3, 1, 1, 1, 1, 1, 1}, {2, 7, 5, 3}, {2, 7, 5, 16}};

  check(problem, ConvolutionForward{problem.window, x, y, problem.w()}, element);
  check(problem, ConvolutionWeightGradient{problem.window, x, dy, problem.w()}, element);
}

TEST_CASE("host_gpu: matrix products agree with the reference") {
  const Element element = any_element();
  const ConvolutionProblem problem{{}, {5, 1, 1, 24}, {5, 1, 1, 16}};
  const bool relu = GENERATE(false, true);

  check(problem, MatrixProductForward{x, y, problem.w(), problem.b(), relu_if(relu)}, element);
  check(problem, MatrixProductInputGradient{dy, dx, problem.w()}, element);
  check(problem, MatrixProductWeightGradient{x, dy, problem.w()}, element);
}

TEST_CASE("host_gpu: results that stay inside are rounded to the type between") {
  const Element between = GENERATE(Element::fp32, Element::fp16);
  const std::vector<__half> large(8, 2048), small(8, 1);
  std::vector<__half> difference(8);
  OperationGraph graph(Element::fp16, between);
  const auto a = graph.input({1, 1, 1, 8}, TensorOperand{x});
  const auto b = graph.input({1, 1, 1, 8}, TensorOperand{residual});
  const auto sum = graph.add(a, b);
  const auto result = graph.subtract(sum, a);
  graph.store(result, TensorOperand{written});
  std::vector<void*> data(4, nullptr);
  data[a] = const_cast<__half*>(large.data());
  data[b] = const_cast<__half*>(small.data());
  data[result] = difference.data();

  host_gpu::interpret(graph, data);

  // 2049 needs 12 bits.
  CHECK(static_cast<float>(difference[7]) == (between == Element::fp32 ? 1 : 0));
}

TEST_CASE("host_gpu: an engine leaves no numbers in its workspace") {
  const ConvolutionProblem problem{{}, {5, 1, 1, 16}, {5, 1, 1, 16}};
  const MatrixProductForward step{x, y, problem.w()};
  const OperationGraph graph = request(problem.schedule(), step, Element::fp32, false).graph();
  const GpuStream stream;
  GraphOperands operands(problem, Element::fp32);
  const std::vector<void*> data = operands.allocate(graph);
  const GpuValues workspace(64);
  const Engine engine{"none", workspace.bytes(),
                      Descriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)};
  const auto runner = make_cudnn_runner(stream);
  REQUIRE(cudaMemset(workspace.data(), 0, workspace.bytes()) == cudaSuccess);
  REQUIRE(workspace.read() == 0);

  runner->bind(engine, graph, data, workspace.data())();

  CHECK(std::isnan(workspace.read()));
}

TEST_CASE("host_gpu: what cuDNN forbids of memory is complained about") {
  const ConvolutionProblem problem{{}, {5, 1, 1, 16}, {5, 1, 1, 16}};
  const OperationGraph graph =
      request(problem.schedule(), MatrixProductForward{x, y, problem.w()}, Element::fp32, false)
          .graph();
  const GpuStream stream;
  GraphOperands operands(problem, Element::fp32);
  std::vector<void*> data = operands.allocate(graph);
  const auto runner = make_cudnn_runner(stream);
  const auto complaints_of = [&](std::size_t workspace_bytes, void* workspace) {
    host_gpu::set_seed(1);
    const Engine engine{"none", workspace_bytes,
                        Descriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)};
    runner->bind(engine, graph, data, workspace);
    return host_gpu::complaints();
  };
  float* const first = static_cast<float*>(data[0]);
  CHECK(complaints_of(0, nullptr).empty());

  CHECK_THAT(complaints_of(64, nullptr).at(0), Catch::Contains("no device memory"));
  CHECK_THAT(complaints_of(64, first).at(0), Catch::Contains("overlaps"));
  data[0] = first + 4;
  CHECK_THAT(complaints_of(0, nullptr).at(0), Catch::Contains("past its end"));
  data[0] = first + 1;
  CHECK_THAT(complaints_of(0, nullptr).at(0), Catch::Contains("aligned"));
  data[0] = data.back();  // y itself
  CHECK_THAT(complaints_of(0, nullptr).at(0), Catch::Contains("overlaps"));
}

TEST_CASE("host_gpu: its device is one that cuDNN plans for") {
  const ConvolutionProblem problem{{3, 3, 1, 1, 1, 1, 1, 1}, {8, 14, 14, 64}, {8, 14, 14, 64}};
  const GpuStream stream;
  Engines engines(make_cudnn_runner(stream)->target());
  const ConvolutionForward step{problem.window, x, y, problem.w()};

  CHECK(engines.ask(request(problem.schedule(), step, Element::fp16, true)).engine);
}
