#include "compute/cuda/engines/operation_graph.hpp"

#include <variant>

namespace ringtrain::cuda {
std::size_t OperationGraph::first_result(Kind kind) {
  switch (kind) {
    case Kind::relu:
    case Kind::statistics:
      return 1;
    case Kind::batch_norm_sums:
      return 5;
    default:
      return 2;
  }
}

OperationGraph::Tensor OperationGraph::tensor(const Extents& extents, Element element,
                                              std::optional<Operand> operand) {
  values_.push_back({extents, element, operand, extents[1]});
  return values_.size() - 1;
}

void OperationGraph::store(Tensor result, Operand operand) {
  values_[result].operand = operand;
  values_[result].element = io_;
}

void OperationGraph::set_pitches(const std::map<TensorId, std::int64_t>& pitches) {
  for (Value& value : values_) {
    if (!value.operand) continue;
    const auto* tensor = std::get_if<TensorOperand>(&*value.operand);
    if (tensor != nullptr && pitches.contains(tensor->id)) value.pitch = pitches.at(tensor->id);
  }
}

OperationGraph::Tensor OperationGraph::pointwise(Kind kind, Tensor a, Tensor b) {
  const Tensor y = result(values_[a].extents);
  operations_.push_back({kind, {a, b, y}});
  return y;
}

OperationGraph::Tensor OperationGraph::relu(Tensor x) {
  const Tensor y = result(values_[x].extents);
  operations_.push_back({Kind::relu, {x, y}});
  return y;
}

OperationGraph::Tensor OperationGraph::relu_gradient(Tensor dy, Tensor y) {
  const Tensor dx = result(values_[dy].extents);
  operations_.push_back({Kind::relu_gradient, {y, dy, dx}});
  return dx;
}

OperationGraph::Tensor OperationGraph::convolution(const Window& window, Tensor x, Tensor w,
                                                   const Shape& shape) {
  const Tensor y = result(nchw(shape));
  operations_.push_back({Kind::convolution, {x, w, y}, window});
  return y;
}

OperationGraph::Tensor OperationGraph::input_gradient(const Window& window, Tensor dy, Tensor w,
                                                      const Shape& shape) {
  const Tensor dx = result(nchw(shape));
  operations_.push_back({Kind::input_gradient, {dy, w, dx}, window});
  return dx;
}

OperationGraph::Tensor OperationGraph::weight_gradient(const Window& window, Tensor dy, Tensor x,
                                                       int out, int in) {
  const Tensor dw = result({out, in, window.height, window.width});
  operations_.push_back({Kind::weight_gradient, {dy, x, dw}, window});
  return dw;
}

void OperationGraph::statistics(Tensor x, Operand sum, Operand squares) {
  const int channels = static_cast<int>(values_[x].extents[1]);
  const Tensor first = vector(channels, sum), second = vector(channels, squares);
  operations_.push_back({Kind::statistics, {x, first, second}});
}

void OperationGraph::batch_norm_sums(Tensor dy, Tensor x, const BatchNormVectors& v) {
  const int channels = static_cast<int>(values_[x].extents[1]);
  std::vector<Tensor> tensors{dy, x, v.mean, v.inverse_deviation, v.gamma};
  for (const Operand& written : {v.dgamma, v.dbeta, v.g_scale, v.x_scale, v.shift})
    tensors.push_back(vector(channels, written));
  operations_.push_back({Kind::batch_norm_sums, std::move(tensors)});
}

std::vector<bool> OperationGraph::written() const {
  std::vector<bool> written(values_.size());
  for (const Operation& operation : operations_)
    for (std::size_t i = first_result(operation.kind); i < operation.tensors.size(); ++i)
      written[operation.tensors[i]] = true;
  return written;
}

}  // namespace ringtrain::cuda
