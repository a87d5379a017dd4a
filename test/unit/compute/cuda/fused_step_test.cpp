// cuDNN's engines for the convolutions of our networks, one by one, against the reference. What is
// fused must be what its parts are.
#include <fmt/core.h>

#include <cstdlib>
#include <set>

#include "compute/cuda/engines/convolution.hpp"
#include "compute/cuda/engines/cudnn_runner.hpp"
#include "compute/reference/state.hpp"
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

  void run(const Engine& engine, CudnnRunner& runner, cudaStream_t stream) {
    const GpuValues workspace(engine.workspace / sizeof(float) + 1);
    operands_.forget_results(graph, data_);
    runner.bind(engine, graph, data_, workspace.data())();
    REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
  }
  /// The largest relative error of what `engine` writes; infinite where it is no number.
  double error_of(const Engine& engine, CudnnRunner& runner, cudaStream_t stream) {
    run(engine, runner, stream);
    return operands_.largest_error(graph, data_);
  }
  const reference::State& expected() const { return operands_.state; }
  /// What the engine wrote last as an operand of type O that is `wanted`.
  template <class O, class Wanted>
  std::vector<double> result(Wanted wanted) const {
    return operands_.result<O>(graph, data_, wanted);
  }

 private:
  GraphOperands operands_;
  const std::vector<void*> data_;
};

AppliedNorm activation(const AppliedNorm& of) {
  AppliedNorm how{.scale = scale, .bias = bias, .then = of.then};
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
  step.then = s.then;
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
  how.then = s.epilogue->then;
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

namespace {

constexpr double epsilon = 1e-5;

// What x is in a channel, by the channel's number modulo the count of these: kinds that random
// numbers do not make.
struct ChannelKind {
  const char* name;
  double mean, deviation;
};
constexpr ChannelKind kinds[] = {{"empty", 0, 0},
                                 {"constant", 3, 0},
                                 {"variance below epsilon", 0, 1e-3},
                                 {"variance at epsilon", 0.02, 3.2e-3},
                                 {"mean far from 0", 50, 1},
                                 {"mean far from 0, below", -20, 0.25},
                                 {"ordinary", 0, 1},
                                 {"large", 1, 30}};

// x as `kinds` say; mean and inverse deviation are those of x. Gradients differ by channel, too.
void make_unequal(const ConvolutionProblem& problem, Element element, reference::State& state) {
  auto& values = state.tensors[x];
  const std::size_t channels = problem.from.channels;
  const double count = double(values.size() / channels);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const ChannelKind& kind = kinds[i % channels % std::size(kinds)];
    values[i] = kind.mean + kind.deviation * values[i];
  }
  DeviceTensor rounded(element, values.size());
  rounded.write(values);
  values = rounded.read();
  reference::State::Moments m{std::vector<double>(channels), std::vector<double>(channels), count};
  for (std::size_t i = 0; i < values.size(); ++i) m.mean[i % channels] += values[i] / count;
  for (std::size_t i = 0; i < values.size(); ++i)
    m.variance[i % channels] += std::pow(values[i] - m.mean[i % channels], 2) / count;
  for (std::size_t c = 0; c < channels; ++c) {
    state.vectors[mean][c] = m.mean[c] = static_cast<float>(m.mean[c]);
    state.vectors[inverse][c] = 1 / std::sqrt(m.variance[c] + epsilon);
    state.parameters[problem.by_channel(0).first + c] += c % 2 == 0 ? 1 : -1;  // gamma: none is 0
    double& beta = state.parameters[problem.by_channel(1).first + c];
    beta = std::abs(beta) + 0.5;  // so that a constant channel passes the ReLU
  }
  state.moments[x] = std::move(m);
  for (std::size_t i = 0; i < problem.weights(); ++i)
    state.parameters[i] *= std::exp2(double(i % channels % 5) - 4);
}

// Of each channel, by what its terms could come to.
void check_near(const std::vector<double>& actual, const std::vector<double>& wanted,
                const std::vector<double>& sizes) {
  REQUIRE(actual.size() == wanted.size());
  for (std::size_t c = 0; c < actual.size(); ++c) {
    CAPTURE(c, kinds[c % std::size(kinds)].name, actual[c], wanted[c]);
    CHECK(std::abs(actual[c] - wanted[c]) <= 2e-3 * sizes[c] + 1e-30);
  }
}

}  // namespace

// The reading that operation_graph.cpp writes down, against BatchNorm's own gradient, which knows
// no A, B and C.
TEST_CASE("cuda engines: what BN_BWD_WEIGHTS writes is the gradient of a BatchNorm") {
  const Window window = GENERATE(Window{}, Window{3, 3, 1, 1, 1, 1, 1, 1});
  const bool joins = GENERATE(false, true);  // with a skip's gradient and a residual
  CAPTURE(window.height, joins);
  const Element element = Element::fp16;
  const ConvolutionProblem problem{window, {2, 6, 6, 64}, {2, 6, 6, 64}};
  ConvolutionInputGradient step{window, dy, no_tensor, problem.w()};
  step.epilogue = problem.epilogue();
  if (joins) {
    step.epilogue->skip = skip;
    step.epilogue->residual = residual;
  }
  EngineCase one(problem, step, element,
                 [&](reference::State& state) { make_unequal(problem, element, state); });
  const GpuStream stream;
  const auto runner = make_cudnn_runner(stream);
  Engines engines(runner->target(), {false, runner->compiles()});
  const Answer& answer = engines.ask(one.request);
  REQUIRE(answer.engine);

  one.run(*answer.engine, *runner, stream);

  const auto vector = [&](VectorId id) {
    return one.result<VectorOperand>([id](const VectorOperand& o) { return o.id == id; });
  };
  const auto gradient = [&](ParameterRange range) {
    return one.result<GradientOperand>(
        [=](const GradientOperand& o) { return o.range.first == range.first; });
  };
  const auto g = one.result<TensorOperand>([](const TensorOperand& o) { return o.id == written; });
  const auto a = vector(g_scale), b = vector(x_scale), c = vector(shift);

  // The whole BatchNorm's gradient, of what the engine made of the convolution's and the ReLU's.
  reference::State state = one.expected();
  state.tensors[written] = g;
  BatchNormBackward whole{};
  whole.x = x;
  whole.y = no_tensor;
  whole.dy = written;
  whole.dx = dx;
  whole.gamma = problem.by_channel(0);
  whole.beta = problem.by_channel(1);
  whole.epsilon = static_cast<float>(epsilon);
  reference::run_step(whole, state);

  const std::size_t channels = problem.from.channels;
  const auto& input = state.tensors[x];
  const auto& wanted = state.tensors[dx];
  std::vector<double> sums(channels), products(channels), difference(channels), length(channels);
  std::vector<double> zeros(channels);
  for (std::size_t i = 0; i < g.size(); ++i) {
    const std::size_t k = i % channels;
    const double normal = (input[i] - state.vectors[mean][k]) * state.vectors[inverse][k];
    sums[k] += std::abs(g[i]);
    const double rounding = 1e-6 * std::abs(state.vectors[mean][k]) * state.vectors[inverse][k];
    products[k] += std::abs(g[i]) * (std::abs(normal) + rounding);
    difference[k] += std::pow(a[k] * g[i] + b[k] * input[i] + c[k] - wanted[i], 2);
    length[k] += wanted[i] * wanted[i];
  }
  for (std::size_t k = 0; k < channels; ++k) {
    difference[k] = std::sqrt(difference[k]);
    length[k] = std::sqrt(length[k]);
    CHECK(length[k] > 0);
  }
  const auto expected = [&](ParameterRange range) {
    return std::vector(state.gradients.begin() + std::ptrdiff_t(range.first),
                       state.gradients.begin() + std::ptrdiff_t(range.end()));
  };
  check_near(gradient(*whole.gamma), expected(*whole.gamma), products);
  check_near(gradient(whole.beta), expected(whole.beta), sums);
  check_near(difference, zeros, length);
}
