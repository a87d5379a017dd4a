#pragma once
#include <cuda_runtime_api.h>

#include <functional>

#include "compute/cuda/engines/operation_graph.hpp"
#include "support/catch.hpp"
#include "support/host_gpu/interpreter.hpp"
#include "support/host_gpu_case.hpp"
#include "support/kernel_case.hpp"

namespace ringtrain {

/// Windows from x to y and back. Parameters are weights, then four ranges by channel of x, then a
/// bias of y.
struct ConvolutionProblem {
  enum Tensors : compute::TensorId { x, y, residual, skip, written, dy, dx, tensor_count };
  enum Vectors : compute::VectorId {
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

  compute::Window window;
  compute::Shape from, to;

  std::size_t weights() const {
    return std::size_t(window.height) * window.width * from.channels * to.channels;
  }
  compute::ParameterRange w() const { return {0, weights()}; }
  compute::ParameterRange by_channel(std::size_t which) const {
    const std::size_t channels = from.channels;
    return {weights() + which * channels, channels};
  }
  compute::ParameterRange b() const { return {by_channel(4).first, std::size_t(to.channels)}; }
  compute::Schedule schedule() const {
    compute::Schedule s;
    s.tensors = {from, to, from, from, from, to, from};
    s.vectors = std::vector<int>(vector_count, from.channels);
    s.vectors[sums] = 2 * to.channels;
    s.parameters = b().end();
    s.batch = from.batch;
    return s;
  }
  /// Of the BatchNorm behind x, and of that behind the residual, whose gradient is the same.
  compute::BatchNormSums epilogue() const {
    compute::BatchNormSums how{
        .x = x, .g = written, .then = compute::Activation::relu, .beta = by_channel(1)};
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
  compute::BatchNormSums of_residual() const {
    compute::BatchNormSums how = epilogue();
    how.x = residual;
    how.g = compute::no_tensor;
    how.then = compute::Activation::none;
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

/// Pixels with other numbers of channels: cut, or with zeros at their ends.
inline std::vector<double> with_channels(const std::vector<double>& values, std::size_t channels,
                                         std::size_t wanted) {
  std::vector<double> result(values.size() / channels * wanted);
  for (std::size_t i = 0; i < values.size(); ++i)
    if (i % channels < wanted) result[i / channels * wanted + i % channels] = values[i];
  return result;
}

/// The reference's state, random, and the same in device memory for the operands of a graph.
class GraphOperands {
 public:
  /// `change` may then set other numbers, but not the scales and biases that follow from them.
  GraphOperands(const ConvolutionProblem& problem, Element element,
                const std::function<void(compute::reference::State&)>& change = {})
      : state(problem.schedule(), 1) {
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
    for (const compute::VectorId id : {inverse, other_inverse})
      for (double& v : state.vectors[id]) v = std::abs(v) + 0.5;
    if (change) change(state);
    set_affine(problem.epilogue(), scale, bias);
    set_affine(problem.of_residual(), residual_scale, residual_bias);
  }

  compute::reference::State state;

  /// For each value its memory: null without operand, no numbers where the graph writes.
  std::vector<void*> allocate(const compute::cuda::OperationGraph& graph) {
    const std::vector<bool> is_result = graph.written();
    std::vector<void*> data;
    for (std::size_t i = 0; i < is_result.size(); ++i)
      data.push_back(graph.values()[i].operand ? allocate(graph.values()[i], !is_result[i])
                                               : nullptr);
    return data;
  }
  /// Compares what the graph has written with `state`, where the reference has.
  void check_results(const compute::cuda::OperationGraph& graph, std::span<void* const> data,
                     double tolerance) const {
    const std::vector<bool> is_result = graph.written();
    for (std::size_t i = 0; i < is_result.size(); ++i) {
      const Value& value = graph.values()[i];
      if (!is_result[i] || !value.operand) continue;
      if (std::holds_alternative<compute::cuda::UnwantedOperand>(*value.operand)) continue;
      CAPTURE(i, value.operand->index());
      CHECK(relative_norm(read(value, data[i]), contents(*value.operand)) < tolerance);
    }
  }

  /// Fills what the graph writes with no numbers.
  void forget_results(const compute::cuda::OperationGraph& graph,
                      std::span<void* const> data) const {
    for_each_result(graph, [&](std::size_t i, const Value& value) {
      REQUIRE(cudaMemset(data[i], 0xff, host_gpu::bytes_of(value)) == cudaSuccess);
    });
    REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  }
  /// What the graph has written as an operand of type O that is `wanted`.
  template <class O, class Wanted>
  std::vector<double> result(const compute::cuda::OperationGraph& graph,
                             std::span<void* const> data, Wanted wanted) const {
    std::vector<double> found;
    for_each_result(graph, [&](std::size_t i, const Value& value) {
      const O* const operand = std::get_if<O>(&*value.operand);
      if (operand != nullptr && wanted(*operand)) found = read(value, data[i]);
    });
    return found;
  }
  /// By their norms, of what the graph has written and the reference has in `state`.
  double largest_error(const compute::cuda::OperationGraph& graph,
                       std::span<void* const> data) const {
    double largest = 0;
    for_each_result(graph, [&](std::size_t i, const Value& value) {
      if (!std::holds_alternative<compute::cuda::UnwantedOperand>(*value.operand))
        largest = std::max(largest, relative_norm(read(value, data[i]), contents(*value.operand)));
    });
    return largest;
  }

 private:
  using Value = compute::cuda::OperationGraph::Value;
  using enum ConvolutionProblem::Vectors;

  template <class F>
  static void for_each_result(const compute::cuda::OperationGraph& graph, F f) {
    const std::vector<bool> is_result = graph.written();
    for (std::size_t i = 0; i < is_result.size(); ++i)
      if (is_result[i] && graph.values()[i].operand) f(i, graph.values()[i]);
  }

  // y = x * scale + bias is the BatchNorm.
  void set_affine(const compute::BatchNormSums& norm, compute::VectorId to_scale,
                  compute::VectorId to_bias) {
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
  std::vector<double> contents(const compute::cuda::TensorOperand& o) const {
    return state.tensors[o.id];
  }
  // The two halves of `sums` are operands of their own.
  std::vector<double> contents(const compute::cuda::VectorOperand& o) const {
    const auto& all = state.vectors[o.id];
    return part(all, o.first, o.id == sums ? all.size() / 2 : all.size());
  }
  std::vector<double> contents(const compute::cuda::OnesOperand& o) const {
    return std::vector<double>(o.count, 1);
  }
  std::vector<double> contents(const compute::cuda::UnwantedOperand& o) const {
    return std::vector<double>(o.count);
  }
  std::vector<double> contents(const compute::cuda::LoweredBetaOperand& o) const {
    auto beta = part(state.parameters, o.range.first, o.range.count);
    for (double& v : beta) v -= 1e-30;
    return beta;
  }
  std::vector<double> contents(const auto& o) const {
    constexpr bool is_gradient =
        std::is_same_v<decltype(o), const compute::cuda::GradientOperand&> ||
        std::is_same_v<decltype(o), const compute::cuda::WeightGradientOperand&>;
    return part(is_gradient ? state.gradients : state.parameters, o.range.first, o.range.count);
  }
  std::vector<double> contents(const compute::cuda::Operand& operand) const {
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

}  // namespace ringtrain
