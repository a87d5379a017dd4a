#include <cuda_runtime_api.h>

#include <catch2/catch.hpp>

#include "compute/cuda/convolution.hpp"
#include "compute/cuda/cudnn_runner.hpp"
#include "support/host_gpu/host_gpu.hpp"
#include "support/host_gpu/interpreter.hpp"
#include "support/host_gpu_case.hpp"
#include "support/kernel_case.hpp"

using namespace ringtrain;
using namespace ringtrain::cuda;

namespace {

using Value = OperationGraph::Value;

enum : TensorId { x, y, residual, skip, written, dy, dx, tensor_count };
enum : VectorId {
  scale,
  bias,
  residual_scale,
  residual_bias,
  mean,
  inverse,
  other_mean,
  other_inverse,
  g_scale,
  x_scale,
  shift,
  other_g_scale,
  other_x_scale,
  other_shift,
  sums,
  vector_count
};

// Windows from x to y and back; parameters are weights, then four ranges by channel of x, then a
// bias of y.
struct Problem {
  Window window;
  Shape from, to;

  std::size_t weights() const {
    return std::size_t(window.height) * window.width * from.channels * to.channels;
  }
  ParameterRange w() const { return {0, weights()}; }
  ParameterRange by_channel(std::size_t which) const {
    const std::size_t channels = from.channels;
    return {weights() + which * channels, channels};
  }
  ParameterRange b() const { return {by_channel(4).first, std::size_t(to.channels)}; }
  Schedule schedule() const {
    Schedule s;
    s.tensors = {from, to, from, from, from, to, from};
    s.vectors = std::vector<int>(vector_count, from.channels);
    s.vectors[sums] = 2 * to.channels;
    s.parameters = b().end();
    s.batch = from.batch;
    return s;
  }
  BatchNormSums epilogue() const {
    BatchNormSums how{.x = x, .g = written, .relu = true, .beta = by_channel(1)};
    how.gamma = by_channel(0);
    how.count = from.pixels();
    how.scale = scale;
    how.bias = bias;
    how.mean = mean;
    how.inverse_deviation = inverse;
    how.g_scale = g_scale;
    how.x_scale = x_scale;
    how.shift = shift;
    return how;
  }
  BatchNormSums of_residual() const {
    BatchNormSums how = epilogue();
    how.x = residual;
    how.g = no_tensor;
    how.relu = false;
    how.gamma = by_channel(2);
    how.beta = by_channel(3);
    how.mean = other_mean;
    how.inverse_deviation = other_inverse;
    how.g_scale = other_g_scale;
    how.x_scale = other_x_scale;
    how.shift = other_shift;
    return how;
  }
};

// Pixels with other numbers of channels: cut, or with zeros at their ends.
std::vector<double> with_channels(const std::vector<double>& values, std::size_t channels,
                                  std::size_t wanted) {
  std::vector<double> result(values.size() / channels * wanted);
  for (std::size_t i = 0; i < values.size(); ++i)
    if (i % channels < wanted) result[i / channels * wanted + i % channels] = values[i];
  return result;
}

// The reference's state, random, and the same on the GPU for the operands of a graph.
class Operands {
 public:
  Operands(const Problem& problem, Element element) : state(problem.schedule(), 1) {
    Philox random(7, Purpose::initialise);
    const auto fill = [&](std::vector<double>& values) {
      DeviceTensor rounded(element, values.size());
      for (double& v : values) v = random.normal();
      rounded.write(values);
      values = rounded.read();
    };
    for (auto& tensor : state.tensors) fill(tensor);
    for (auto& vector : state.vectors) fill(vector);
    fill(state.parameters);
    for (const VectorId id : {inverse, other_inverse})
      for (double& v : state.vectors[id]) v = std::abs(v) + 0.5;
    set_affine(problem.epilogue(), scale, bias);
    set_affine(problem.of_residual(), residual_scale, residual_bias);
  }

  reference::State state;

  std::vector<void*> allocate(const OperationGraph& graph) {
    const std::vector<bool> is_result = host_gpu::results_of(graph);
    std::vector<void*> data;
    for (std::size_t i = 0; i < is_result.size(); ++i)
      data.push_back(graph.values()[i].operand ? allocate(graph.values()[i], !is_result[i])
                                               : nullptr);
    return data;
  }
  void check_results(const OperationGraph& graph, std::span<void* const> data,
                     double tolerance) const {
    const std::vector<bool> is_result = host_gpu::results_of(graph);
    for (std::size_t i = 0; i < is_result.size(); ++i) {
      const Value& value = graph.values()[i];
      if (!is_result[i] || !value.operand) continue;
      if (std::holds_alternative<UnwantedOperand>(*value.operand)) continue;
      CAPTURE(i, value.operand->index());
      CHECK(relative_norm(read(value, data[i]), contents(*value.operand)) < tolerance);
    }
  }

 private:
  // y = x * scale + bias is the BatchNorm.
  void set_affine(const BatchNormSums& norm, VectorId to_scale, VectorId to_bias) {
    for (std::size_t c = 0; c < state.vectors[scale].size(); ++c) {
      const double factor =
          state.parameters[norm.gamma->first + c] * state.vectors[norm.inverse_deviation][c];
      state.vectors[to_scale][c] = factor;
      state.vectors[to_bias][c] =
          state.parameters[norm.beta.first + c] - factor * state.vectors[norm.mean][c];
    }
  }

  static std::vector<double> part(const std::vector<double>& all, std::size_t first,
                                  std::size_t count) {
    return {all.begin() + first, all.begin() + first + count};
  }
  std::vector<double> contents(const TensorOperand& o) const { return state.tensors[o.id]; }
  // The two halves of `sums` are operands of their own.
  std::vector<double> contents(const VectorOperand& o) const {
    const auto& all = state.vectors[o.id];
    return part(all, o.first, o.id == sums ? all.size() / 2 : all.size());
  }
  std::vector<double> contents(const OnesOperand& o) const {
    return std::vector<double>(o.count, 1);
  }
  std::vector<double> contents(const UnwantedOperand& o) const {
    return std::vector<double>(o.count);
  }
  std::vector<double> contents(const auto& o) const {
    constexpr bool is_gradient = std::is_same_v<decltype(o), const GradientOperand&> ||
                                 std::is_same_v<decltype(o), const WeightGradientOperand&>;
    return part(is_gradient ? state.gradients : state.parameters, o.range.first, o.range.count);
  }
  std::vector<double> contents(const Operand& operand) const {
    return std::visit([&](const auto& o) { return contents(o); }, operand);
  }

  void* allocate(const Value& value, bool filled) {
    const std::size_t bytes = host_gpu::bytes_of(value);
    memory_.push_back(std::make_unique<GpuValues>(bytes / sizeof(float) + 1));
    if (filled) write(value, memory_.back()->data());
    return memory_.back()->data();
  }
  void write(const Value& value, void* to) const {
    const std::vector<double> values = contents(*value.operand);
    DeviceTensor copy(value.element, host_gpu::bytes_of(value) / bytes_of(value.element));
    const std::size_t channels = value.extents[1], pixels = copy.read().size() / channels;
    copy.write(with_channels(values, values.size() / pixels, channels));
    REQUIRE(cudaMemcpy(to, copy.data(), copy.bytes().size(), cudaMemcpyHostToDevice) == 0);
  }
  std::vector<double> read(const Value& value, const void* from) const {
    DeviceTensor copy(value.element, host_gpu::bytes_of(value) / bytes_of(value.element));
    REQUIRE(cudaMemcpy(copy.data(), from, copy.bytes().size(), cudaMemcpyDeviceToHost) == 0);
    const std::vector<double> values = copy.read();
    const std::size_t channels = value.extents[1], pixels = values.size() / channels;
    return with_channels(values, channels, contents(*value.operand).size() / pixels);
  }

  std::vector<std::unique_ptr<GpuValues>> memory_;
};

// Runs what cuDNN would be asked for, and the step on the reference; compares all that is written.
template <class Kind>
void check(const Problem& problem, const Kind& step, Element element) {
  host_gpu::set_seed(1);
  const Schedule schedule = problem.schedule();
  const OperationGraph graph = [&] {
    if constexpr (requires { request(schedule, step, element, true); })
      return request(schedule, step, element, true).graph();
    else
      return request(schedule, step, element).graph();
  }();
  const GpuStream stream;
  Operands operands(problem, element);
  const std::vector<void*> data = operands.allocate(graph);
  const GpuValues workspace(64);
  const Engine engine{"none", workspace.bytes(),
                      Descriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)};
  const auto runner = make_cudnn_runner(stream);

  runner->bind(engine, graph, data, workspace.data())();
  REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
  reference::run(step, operands.state);

  operands.check_results(graph, data, tolerance(element));
  CHECK(host_gpu::counts().engines == 1);
  CHECK(host_gpu::complaints().empty());
}

Element any_element() { return GENERATE(Element::fp32, Element::fp16); }

Problem any_convolution() {
  const int in = GENERATE(8, 24), out = 16;
  return GENERATE_COPY(Problem{{3, 3, 1, 1, 1, 1, 1, 1}, {2, 7, 5, in}, {2, 7, 5, out}},
                       Problem{{3, 5, 2, 1, 0, 2, 1, 2}, {3, 8, 5, in}, {3, 4, 5, out}},
                       Problem{{1, 1, 2, 2, 0, 0, 0, 0}, {2, 6, 6, in}, {2, 3, 3, out}});
}

}  // namespace

TEST_CASE("host_gpu: a convolution's engine agrees with the reference") {
  const Element element = any_element();
  const Problem problem = any_convolution();
  const bool with_bias = GENERATE(false, true), relu = GENERATE(false, true);
  ConvolutionForward step{problem.window, x, y, problem.w()};
  if (with_bias) step.b = problem.b();
  step.relu = relu;

  check(problem, step, element);
}

TEST_CASE("host_gpu: a convolution between BatchNorms agrees with the reference") {
  const Element element = any_element();
  const Problem problem = any_convolution();
  const int kind = GENERATE(0, 1, 2, 3);  // no prologue, one, with residual, with scaled residual
  const bool with_sums = GENERATE(false, true);
  ConvolutionForward step{problem.window, x, y, problem.w()};
  if (with_sums) step.sums = sums;
  if (kind > 0) step.prologue = Activation{.scale = scale, .bias = bias, .relu = true};
  if (kind > 1) {
    step.prologue->residual = residual;
    step.prologue->y = written;
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
  const Problem problem = any_convolution();

  check(problem, ConvolutionInputGradient{problem.window, dy, dx, problem.w()}, element);
}

TEST_CASE("host_gpu: an input gradient and what BatchNorm wants of it agree with the reference") {
  const Element element = any_element();
  const Problem problem = any_convolution();
  const int mask = GENERATE(0, 1, 2, 3);  // from x, from y, with residual, with scaled residual
  const bool relu = GENERATE(false, true), with_skip = GENERATE(false, true);
  const bool with_gamma = mask == 3 || GENERATE(false, true);
  CAPTURE(element, mask, relu, with_skip, with_gamma);
  ConvolutionInputGradient step{problem.window, dy, no_tensor, problem.w()};
  BatchNormSums& how = step.epilogue.emplace(problem.epilogue());
  how.relu = relu;
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
  const Problem problem = any_convolution();
  const bool with_prologue = GENERATE(false, true);
  ConvolutionWeightGradient step{problem.window, x, dy, problem.w()};
  if (with_prologue) step.prologue = Activation{.scale = scale, .bias = bias, .relu = true};

  check(problem, step, element);
}

TEST_CASE("host_gpu: channels that pad an image do not change the result") {
  const Element element = any_element();
  const Problem problem{{3, 3, 1, 1, 1, 1, 1, 1}, {2, 7, 5, 3}, {2, 7, 5, 16}};

  check(problem, ConvolutionForward{problem.window, x, y, problem.w()}, element);
  check(problem, ConvolutionWeightGradient{problem.window, x, dy, problem.w()}, element);
}

TEST_CASE("host_gpu: matrix products agree with the reference") {
  const Element element = any_element();
  const Problem problem{{}, {5, 1, 1, 24}, {5, 1, 1, 16}};
  const bool relu = GENERATE(false, true);

  check(problem, MatrixProductForward{x, y, problem.w(), problem.b(), relu}, element);
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
  const Problem problem{{}, {5, 1, 1, 16}, {5, 1, 1, 16}};
  const MatrixProductForward step{x, y, problem.w()};
  const OperationGraph graph = request(problem.schedule(), step, Element::fp32, false).graph();
  const GpuStream stream;
  Operands operands(problem, Element::fp32);
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
  const Problem problem{{}, {5, 1, 1, 16}, {5, 1, 1, 16}};
  const OperationGraph graph =
      request(problem.schedule(), MatrixProductForward{x, y, problem.w()}, Element::fp32, false)
          .graph();
  const GpuStream stream;
  Operands operands(problem, Element::fp32);
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
  const Problem problem{{3, 3, 1, 1, 1, 1, 1, 1}, {8, 14, 14, 64}, {8, 14, 14, 64}};
  const GpuStream stream;
  Engines engines(make_cudnn_runner(stream)->device());
  const ConvolutionForward step{problem.window, x, y, problem.w()};

  CHECK(engines.ask(request(problem.schedule(), step, Element::fp16, true)).engine);
}
