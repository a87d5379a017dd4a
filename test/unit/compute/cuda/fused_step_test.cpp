// cuDNN's engines for the convolutions of our networks, one by one, against the reference. What is
// fused must be what its parts are.
#include <fmt/core.h>

#include <cstdlib>
#include <set>

#include "compute/cuda/engines/convolution.hpp"
#include "compute/cuda/engines/cudnn_runner.hpp"
#include "ringtrain/compute/gpu.hpp"
#include "ringtrain/model/passes.hpp"
#include "ringtrain/model/zoo.hpp"
#include "support/catch.hpp"
#include "support/graph_operands.hpp"

using namespace ringtrain;
using namespace ringtrain::compute;
using namespace ringtrain::compute::cuda;
using Network = ringtrain::model::Graph;

namespace {

using enum ConvolutionProblem::Tensors;
using enum ConvolutionProblem::Vectors;

template <class Kind>
Request asked(const ConvolutionProblem& problem, const Kind& step, Element element) {
  if constexpr (requires { request(problem.schedule(), step, element, true); })
    return request(problem.schedule(), step, element, true);
  else
    return request(problem.schedule(), step, element);
}

// Of one step, run by engines of cuDNN and by the reference on the same random operands.
class EngineCase {
 public:
  template <class Kind>
  EngineCase(const ConvolutionProblem& problem, const Kind& step, Element element,
             const std::function<void(reference::State&)>& change = {})
      : request(asked(problem, step, element)),
        graph(request.graph()),
        operands_(problem, element, change),
        data_(operands_.allocate(graph)) {
    reference::run_step(step, operands_.state);
  }

  const Request request;
  const OperationGraph graph;

  /// The largest relative error of what `engine` writes; infinite where it is no number.
  double error_of(const Engine& engine, CudnnRunner& runner, cudaStream_t stream) {
    const GpuValues workspace(engine.workspace / sizeof(float) + 1);
    operands_.forget_results(graph, data_);
    runner.bind(engine, graph, data_, workspace.data())();
    REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
    return operands_.largest_error(graph, data_);
  }

 private:
  GraphOperands operands_;
  const std::vector<void*> data_;
};

AppliedNorm activation(const AppliedNorm& of) {
  AppliedNorm how{.scale = scale, .bias = bias, .relu = of.relu};
  if (of.residual != no_tensor) how.residual = residual;
  if (of.residual_scale != no_vector) {
    how.residual_scale = residual_scale;
    how.residual_bias = residual_bias;
  }
  if (of.y != no_tensor) how.y = written;
  return how;
}

// The same steps, alone.
ConvolutionForward alone(const ConvolutionProblem& problem, const ConvolutionForward& s) {
  ConvolutionForward step{problem.window, x, y, problem.w()};
  if (s.b) step.b = problem.b();
  step.relu = s.relu;
  if (s.prologue) step.prologue = activation(*s.prologue);
  if (s.sums != no_vector) step.sums = sums;
  return step;
}

ConvolutionInputGradient alone(const ConvolutionProblem& problem,
                               const ConvolutionInputGradient& s) {
  ConvolutionInputGradient step{problem.window, dy, s.epilogue ? no_tensor : TensorId(dx),
                                problem.w()};
  if (!s.epilogue) return step;
  BatchNormSums& how = step.epilogue.emplace(problem.epilogue());
  how.relu = s.epilogue->relu;
  if (!s.epilogue->gamma) how.gamma.reset();
  if (s.epilogue->skip != no_tensor) how.skip = skip;
  if (s.epilogue->residual != no_tensor) how.residual = residual;
  if (s.epilogue->residual_scale != no_vector) {
    how.residual_scale = residual_scale;
    how.residual_bias = residual_bias;
  }
  if (s.epilogue->y != no_tensor) {
    how.y = written;
    how.g = dx;
  }
  if (s.epilogue_of_residual) step.epilogue_of_residual = problem.of_residual();
  return step;
}

ConvolutionWeightGradient alone(const ConvolutionProblem& problem,
                                const ConvolutionWeightGradient& s) {
  ConvolutionWeightGradient step{problem.window, x, dy, problem.w()};
  if (s.prologue) step.prologue = activation(*s.prologue);
  return step;
}

ConvolutionProblem problem_of(const Schedule& s, const ConvolutionForward& step) {
  return {step.window, s.tensors[step.x], s.tensors[step.y]};
}
ConvolutionProblem problem_of(const Schedule& s, const ConvolutionInputGradient& step) {
  return {step.window, s.tensors[step.epilogue ? step.epilogue->x : step.dx], s.tensors[step.dy]};
}
ConvolutionProblem problem_of(const Schedule& s, const ConvolutionWeightGradient& step) {
  return {step.window, s.tensors[step.x], s.tensors[step.dy]};
}

int number(const char* name, int otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}

}  // namespace

// For a machine with a GPU: RINGTRAIN_MODEL, _BATCH, _FUSED (0, 1), _ENGINES (how many of each
// request), _SHARD and _SHARDS say what.
TEST_CASE("cuda engines: those of a network, one by one", "[.engines]") {
  const char* const name = std::getenv("RINGTRAIN_MODEL");
  const Network graph = model::make_model(name == nullptr ? "resnet20" : name, 10).graph;
  const int batch = number("RINGTRAIN_BATCH", 4), most = number("RINGTRAIN_ENGINES", 1);
  const bool fused = number("RINGTRAIN_FUSED", 1) == 1;
  const int shard = number("RINGTRAIN_SHARD", 0), shards = number("RINGTRAIN_SHARDS", 1);
  const Element element = Element::fp16;
  const auto backend = make_gpu_backend({.element = element});
  const Schedule schedule = model::make_schedule(
      graph, batch, model::Mode::training, 0, [&](const Schedule& at, const Step& step) {
        if (!fused && std::holds_alternative<BatchNormStatistics>(step)) return false;
        return backend->supports(at, step);
      });
  const GpuStream stream;
  const auto runner = make_cudnn_runner(stream);
  Engines engines(runner->target(), {false, runner->compiles()});
  std::set<RequestKey> seen;
  int count = 0;
  const auto check = [&](const auto& step) {
    const ConvolutionProblem problem = problem_of(schedule, step);
    if (problem.from.channels < 8) return;
    const auto same = alone(problem, step);
    if (!seen.insert(asked(problem, same, element).key()).second) return;
    if (count++ % shards != shard) return;
    EngineCase one(problem, same, element);
    const Answer& answer = engines.ask(one.request);
    if (!answer.engine) return;
    const auto show = [&](const char* how, const Engine& engine) {
      const double error = one.error_of(engine, *runner, stream);
      fmt::print("{} {:8.2g} {} {:2} {} | {} | {}\n", error < 0.02 ? "fine " : "WRONG", error, how,
                 engine.place, engine.name, one.request.pattern, one.request.shape);
      std::fflush(stdout);
      CHECK(error < 0.02);
    };
    show("first", *answer.engine);
    if (most > 1)
      for (const Engine& engine : engines.candidates(one.graph, most, std::size_t(1) << 30))
        show("other", engine);
  };
  for (const Step& step : schedule.steps) {
    if (const auto* s = std::get_if<ConvolutionForward>(&step)) check(*s);
    if (const auto* s = std::get_if<ConvolutionInputGradient>(&step)) check(*s);
    if (const auto* s = std::get_if<ConvolutionWeightGradient>(&step)) check(*s);
  }
}

// As in the first step of a ResNet whose last gammas are zero: half of what a ReLU gets are zeros.
TEST_CASE("cuda engines: where a ReLU's input is zero no gradient passes") {
  const Window window = GENERATE(Window{}, Window{3, 3, 1, 1, 1, 1, 1, 1});
  const ConvolutionProblem problem{window, {4, 14, 14, 64}, {4, 14, 14, 64}};
  ConvolutionInputGradient step{window, dy, no_tensor, problem.w()};
  step.epilogue = problem.epilogue();
  step.epilogue->skip = skip;
  step.epilogue->residual = residual;
  const Element element = Element::fp16;
  EngineCase one(problem, step, element, [&](reference::State& state) {
    for (double& v : state.tensors[residual]) v = std::max(v, 0.0);
    for (std::size_t c = 0; c < 64; ++c) {
      state.parameters[problem.by_channel(0).first + c] = 0;
      state.parameters[problem.by_channel(1).first + c] = 0;
    }
  });
  const GpuStream stream;
  const auto runner = make_cudnn_runner(stream);
  Engines engines(runner->target(), {false, runner->compiles()});
  const Answer& answer = engines.ask(one.request);
  REQUIRE(answer.engine);
  CAPTURE(window.height);

  CHECK(one.error_of(*answer.engine, *runner, stream) < 0.01);
}
