#include "compute/cuda/engines/operation_graph.hpp"

#include <array>
#include <utility>
#include <variant>

namespace ringtrain::compute::cuda {

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

namespace {

using Kind = OperationGraph::Kind;
using Pair = std::array<std::int64_t, 2>;
using Names = std::vector<cudnnBackendAttributeName_t>;

template <std::size_t n>
std::span<const std::int64_t> all(const std::array<std::int64_t, n>& values) {
  return values;
}

cudnnDataType_t data_type(Element element) {
  switch (element) {
    case Element::fp16:
      return CUDNN_DATA_HALF;
    case Element::bf16:
      return CUDNN_DATA_BFLOAT16;
    default:
      return CUDNN_DATA_FLOAT;
  }
}

Descriptor window_descriptor(const Window& w) {
  Descriptor d(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  d.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT)
      .set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_CROSS_CORRELATION)
      .set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, std::int64_t{2})
      .set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, all(Pair{w.top, w.left}))
      .set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, all(Pair{w.bottom, w.right}))
      .set(CUDNN_ATTR_CONVOLUTION_DILATIONS, all(Pair{1, 1}))
      .set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, all(Pair{w.stride_y, w.stride_x}));
  d.finalize();
  return d;
}

// An operation and the attributes that its tensors are, in the order of Kind.
struct Begun {
  Descriptor descriptor;
  Names tensors;
};

Begun pointwise(cudnnPointwiseMode_t mode, Names tensors) {
  Descriptor d(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  d.set(CUDNN_ATTR_POINTWISE_MODE, mode).set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT);
  d.finalize();
  Descriptor operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, d);
  return {std::move(operation), std::move(tensors)};
}

Begun binary(cudnnPointwiseMode_t mode) {
  return pointwise(mode,
                   {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
                    CUDNN_ATTR_OPERATION_POINTWISE_YDESC});
}

Begun convolution(const Window& window) {
  Descriptor d(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
  d.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, window_descriptor(window))
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, 1.f)
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, 0.f);
  return {std::move(d),
          {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
           CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y}};
}

Begun input_gradient(const Window& window) {
  Descriptor d(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR);
  d.set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, window_descriptor(window))
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, 1.f)
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, 0.f);
  return {
      std::move(d),
      {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX}};
}

Begun weight_gradient(const Window& window) {
  Descriptor d(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR);
  d.set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, window_descriptor(window))
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, 1.f)
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA, 0.f);
  return {std::move(d),
          {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
           CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
           CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW}};
}

Begun statistics() {
  Descriptor d(CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR);
  d.set(CUDNN_ATTR_OPERATION_GENSTATS_MODE, CUDNN_GENSTATS_SUM_SQSUM)
      .set(CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC, CUDNN_DATA_FLOAT);
  return {std::move(d),
          {CUDNN_ATTR_OPERATION_GENSTATS_XDESC, CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC,
           CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC}};
}

// What follows is one reading of cuDNN's documentation, on which all fused input gradients rest.
// That names this operation's inputs and results, and the sum that the results are the coefficients
// of: Graph API, "DgradDreluBNBwdWeight" (its results dScale, dBias, A, B, C) and "dBNApply" (dx =
// A * dy + B * x + C). It does not say how A, B and C are computed. They follow from BatchNorm's
// gradient (Ioffe and Szegedy 2015), with m pixels a channel, all of x, and INVSTD = 1 /
// sqrt(variance + epsilon):
//   DBN_SCALE   = sum of dy * (x - MEAN) * INVSTD
//   DBN_BIAS    = sum of dy
//   EQ_DY_SCALE = A = BN_SCALE * INVSTD
//   EQ_X_SCALE  = B = -A * INVSTD * DBN_SCALE / m
//   EQ_BIAS     = C = -A * DBN_BIAS / m - B * MEAN
// The test "cuda engines: what BN_BWD_WEIGHTS writes" holds engines to this.
Begun batch_norm_sums() {
  Descriptor d(CUDNN_BACKEND_OPERATION_BN_BWD_WEIGHTS_DESCRIPTOR);
  d.set(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MATH_PREC, CUDNN_DATA_FLOAT);
  return {std::move(d),
          {CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DY_DESC, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_X_DESC,
           CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MEAN_DESC,
           CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_INVSTD_DESC,
           CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_BN_SCALE_DESC,
           CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_SCALE_DESC,
           CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_BIAS_DESC,
           CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_DY_SCALE_DESC,
           CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_X_SCALE_DESC,
           CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_BIAS}};
}

Begun begin(const OperationGraph::Operation& operation) {
  switch (operation.kind) {
    case Kind::add:
      return binary(CUDNN_POINTWISE_ADD);
    case Kind::multiply:
      return binary(CUDNN_POINTWISE_MUL);
    case Kind::subtract:
      return binary(CUDNN_POINTWISE_SUB);
    case Kind::relu:
      return pointwise(CUDNN_POINTWISE_RELU_FWD, {CUDNN_ATTR_OPERATION_POINTWISE_XDESC,
                                                  CUDNN_ATTR_OPERATION_POINTWISE_YDESC});
    case Kind::relu_gradient:
      return pointwise(CUDNN_POINTWISE_RELU_BWD,
                       {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_DYDESC,
                        CUDNN_ATTR_OPERATION_POINTWISE_DXDESC});
    case Kind::convolution:
      return convolution(operation.window);
    case Kind::input_gradient:
      return input_gradient(operation.window);
    case Kind::weight_gradient:
      return weight_gradient(operation.window);
    case Kind::statistics:
      return statistics();
    case Kind::batch_norm_sums:
      break;
  }
  return batch_norm_sums();
}

std::vector<Descriptor> tensor_descriptors(const OperationGraph& graph) {
  std::vector<Descriptor> tensors;
  for (const OperationGraph::Value& value : graph.values()) {
    const OperationGraph::Extents strides = value.strides();
    const auto identifier = static_cast<std::int64_t>(tensors.size() + 1);
    tensors.emplace_back(CUDNN_BACKEND_TENSOR_DESCRIPTOR)
        .set(CUDNN_ATTR_TENSOR_DATA_TYPE, data_type(value.element))
        .set(CUDNN_ATTR_TENSOR_DIMENSIONS, all(value.extents))
        .set(CUDNN_ATTR_TENSOR_STRIDES, all(strides))
        .set(CUDNN_ATTR_TENSOR_UNIQUE_ID, identifier)
        .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, std::int64_t{16})
        .set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, !value.operand)
        .finalize();
  }
  return tensors;
}

}  // namespace

Descriptor describe(const OperationGraph& graph, cudnnHandle_t handle) {
  const std::vector<Descriptor> tensors = tensor_descriptors(graph);
  std::vector<Descriptor> operations;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (const OperationGraph::Operation& operation : graph.operations()) {
    auto [descriptor, names] = begin(operation);
    for (std::size_t i = 0; i < names.size(); ++i)
      descriptor.set(names[i], tensors[operation.tensors[i]]);
    raw.push_back(operations.emplace_back(std::move(descriptor)).finalize().get());
  }
  Descriptor d(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  d.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, std::span<const cudnnBackendDescriptor_t>(raw));
  if (handle != nullptr) d.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, handle);
  d.finalize();
  return d;
}

}  // namespace ringtrain::compute::cuda
