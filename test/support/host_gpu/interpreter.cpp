#include "support/host_gpu/interpreter.hpp"

#include "compute/cuda/kernels/device/lanes.hpp"
#include "support/host_gpu/loops.hpp"

namespace ringtrain::host_gpu {
namespace {

using compute::cuda::OperationGraph;
using compute::cuda::kernels::with_type;
using Kind = OperationGraph::Kind;

using Value = OperationGraph::Value;

std::size_t count_of(const Value& value) {
  const auto& e = value.extents;
  return static_cast<std::size_t>(e[0] * e[1] * e[2] * e[3]);
}

// Where element i lies, counted from the first.
std::size_t place_of(const Value& value, std::size_t i) {
  const auto channels = static_cast<std::size_t>(value.extents[1]);
  return i / channels * static_cast<std::size_t>(value.pitch) + i % channels;
}

void load(const Value& value, const void* from, std::vector<float>& to) {
  compute::cuda::kernels::with_type(value.element, [&]<class T>(T) {
    const T* at = static_cast<const T*>(from);
    for (std::size_t i = 0; i < to.size(); ++i) to[i] = static_cast<float>(at[place_of(value, i)]);
  });
}

void store(const Value& value, const std::vector<float>& from, void* to) {
  compute::cuda::kernels::with_type(value.element, [&]<class T>(T) {
    T* at = static_cast<T*>(to);
    for (std::size_t i = 0; i < from.size(); ++i) at[place_of(value, i)] = static_cast<T>(from[i]);
  });
}

void round_to(Element element, std::vector<float>& values) {
  compute::cuda::kernels::with_type(element, [&]<class T>(T) {
    for (float& v : values) v = static_cast<float>(static_cast<T>(v));
  });
}

void run(const OperationGraph::Operation& operation, const std::vector<Field*>& t) {
  switch (operation.kind) {
    case Kind::add:
      return pointwise(*t[0], *t[1], *t[2], [](float a, float b) { return a + b; });
    case Kind::multiply:
      return pointwise(*t[0], *t[1], *t[2], [](float a, float b) { return a * b; });
    case Kind::subtract:
      return pointwise(*t[0], *t[1], *t[2], [](float a, float b) { return a - b; });
    case Kind::relu:
      return pointwise(*t[0], *t[0], *t[1], [](float x, float) { return x < 0 ? 0 : x; });
    case Kind::relu_gradient:
      // As cuDNN 9.19 does: also where y is 0.
      return pointwise(*t[0], *t[1], *t[2], [](float y, float dy) { return y >= 0 ? dy : 0; });
    case Kind::convolution:
      return convolution(operation.window, *t[0], *t[1], *t[2]);
    case Kind::input_gradient:
      return input_gradient(operation.window, *t[0], *t[1], *t[2]);
    case Kind::weight_gradient:
      return weight_gradient(operation.window, *t[0], *t[1], *t[2]);
    case Kind::statistics:
      return statistics(*t[0], *t[1], *t[2]);
    case Kind::batch_norm_sums:
      return batch_norm_sums({*t[0], *t[1], *t[2], *t[3], *t[4]},
                             {*t[5], *t[6], *t[7], *t[8], *t[9]});
  }
}

}  // namespace

std::size_t bytes_of(const OperationGraph::Value& value) {
  const std::size_t count = count_of(value);
  return count == 0 ? 0 : (place_of(value, count - 1) + 1) * ringtrain::bytes_of(value.element);
}

void interpret(const OperationGraph& graph, std::span<void* const> data) {
  const auto& values = graph.values();
  const std::vector<bool> is_result = graph.written();
  std::vector<Field> fields;
  for (std::size_t i = 0; i < values.size(); ++i) {
    fields.push_back({values[i].extents, std::vector<float>(count_of(values[i]))});
    if (!is_result[i]) load(values[i], data[i], fields[i].at);
  }
  for (const auto& operation : graph.operations()) {
    std::vector<Field*> tensors;
    for (const auto id : operation.tensors) tensors.push_back(&fields[id]);
    run(operation, tensors);
    for (std::size_t i = OperationGraph::first_result(operation.kind); i < tensors.size(); ++i)
      round_to(values[operation.tensors[i]].element, tensors[i]->at);
  }
  for (std::size_t i = 0; i < values.size(); ++i)
    if (is_result[i] && values[i].operand) store(values[i], fields[i].at, data[i]);
}

}  // namespace ringtrain::host_gpu
