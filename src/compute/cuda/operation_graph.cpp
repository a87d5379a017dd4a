#include "compute/cuda/operation_graph.hpp"

namespace ringtrain::cuda {
namespace {

using Pair = std::array<std::int64_t, 2>;

template <std::size_t n>
std::span<const std::int64_t> all(const std::array<std::int64_t, n>& values) {
  return values;
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

Descriptor pointwise_operation(cudnnPointwiseMode_t mode) {
  Descriptor d(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  d.set(CUDNN_ATTR_POINTWISE_MODE, mode).set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT);
  d.finalize();
  Descriptor operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, d);
  return operation;
}

}  // namespace

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

OperationGraph::Extents OperationGraph::nchw(const Shape& shape) {
  return {shape.batch, shape.channels, shape.height, shape.width};
}

OperationGraph::Tensor OperationGraph::tensor(const Extents& extents, Element element,
                                              bool inside) {
  values_.push_back({extents, element, inside});
  return values_.size() - 1;
}

void OperationGraph::store(Tensor result) {
  values_[result].inside = false;
  values_[result].element = io_;
}

OperationGraph::Tensor OperationGraph::vector(int channels, Element element) {
  return tensor({1, channels, 1, 1}, element, false);
}

OperationGraph::Tensor OperationGraph::weights(int out, const Window& window, int in) {
  return tensor({out, in, window.height, window.width}, io_, false);
}

OperationGraph::Tensor OperationGraph::pointwise(cudnnPointwiseMode_t mode, Tensor a, Tensor b) {
  const Tensor y = result(values_[a].extents);
  operations_.push_back({pointwise_operation(mode),
                         {{CUDNN_ATTR_OPERATION_POINTWISE_XDESC, a},
                          {CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b},
                          {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y}}});
  return y;
}

OperationGraph::Tensor OperationGraph::relu(Tensor x) {
  const Tensor y = result(values_[x].extents);
  operations_.push_back(
      {pointwise_operation(CUDNN_POINTWISE_RELU_FWD),
       {{CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x}, {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y}}});
  return y;
}

OperationGraph::Tensor OperationGraph::relu_gradient(Tensor dy, Tensor y) {
  const Tensor dx = result(values_[dy].extents);
  operations_.push_back({pointwise_operation(CUDNN_POINTWISE_RELU_BWD),
                         {{CUDNN_ATTR_OPERATION_POINTWISE_XDESC, y},
                          {CUDNN_ATTR_OPERATION_POINTWISE_DYDESC, dy},
                          {CUDNN_ATTR_OPERATION_POINTWISE_DXDESC, dx}}});
  return dx;
}

OperationGraph::Tensor OperationGraph::convolution(const Window& window, Tensor x, Tensor w,
                                                   const Shape& shape) {
  const Tensor y = result(nchw(shape));
  Descriptor d(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
  d.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, window_descriptor(window))
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, 1.f)
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, 0.f);
  operations_.push_back({std::move(d),
                         {{CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, x},
                          {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, w},
                          {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, y}}});
  return y;
}

OperationGraph::Tensor OperationGraph::input_gradient(const Window& window, Tensor dy, Tensor w,
                                                      const Shape& shape) {
  const Tensor dx = result(nchw(shape));
  Descriptor d(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR);
  d.set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, window_descriptor(window))
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, 1.f)
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, 0.f);
  operations_.push_back({std::move(d),
                         {{CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, dy},
                          {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, w},
                          {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, dx}}});
  return dx;
}

OperationGraph::Tensor OperationGraph::weight_gradient(const Window& window, Tensor dy, Tensor x,
                                                       int out, int in) {
  const Tensor dw = result({out, in, window.height, window.width});
  Descriptor d(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR);
  d.set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, window_descriptor(window))
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, 1.f)
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA, 0.f);
  operations_.push_back({std::move(d),
                         {{CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, dy},
                          {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, x},
                          {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, dw}}});
  return dw;
}

void OperationGraph::statistics(Tensor x) {
  const int channels = static_cast<int>(values_[x].extents[1]);
  Descriptor d(CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR);
  d.set(CUDNN_ATTR_OPERATION_GENSTATS_MODE, CUDNN_GENSTATS_SUM_SQSUM)
      .set(CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC, CUDNN_DATA_FLOAT);
  operations_.push_back({std::move(d),
                         {{CUDNN_ATTR_OPERATION_GENSTATS_XDESC, x},
                          {CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, vector(channels)},
                          {CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC, vector(channels)}}});
}

void OperationGraph::batch_norm_sums(Tensor dy, Tensor x, Tensor mean, Tensor inverse_deviation,
                                     Tensor gamma) {
  const int channels = static_cast<int>(values_[x].extents[1]);
  Descriptor d(CUDNN_BACKEND_OPERATION_BN_BWD_WEIGHTS_DESCRIPTOR);
  d.set(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MATH_PREC, CUDNN_DATA_FLOAT);
  operations_.push_back({std::move(d),
                         {{CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DY_DESC, dy},
                          {CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_X_DESC, x},
                          {CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MEAN_DESC, mean},
                          {CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_INVSTD_DESC, inverse_deviation},
                          {CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_BN_SCALE_DESC, gamma},
                          {CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_SCALE_DESC, vector(channels)},
                          {CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_BIAS_DESC, vector(channels)},
                          {CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_DY_SCALE_DESC, vector(channels)},
                          {CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_X_SCALE_DESC, vector(channels)},
                          {CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_BIAS, vector(channels)}}});
}

std::vector<Descriptor> OperationGraph::tensor_descriptors() const {
  std::vector<Descriptor> tensors;
  for (const auto& [extents, element, inside] : values_) {
    const auto [n, c, h, w] = extents;
    const Extents strides{h * w * c, 1, w * c, c};
    const auto identifier = static_cast<std::int64_t>(tensors.size() + 1);
    tensors.emplace_back(CUDNN_BACKEND_TENSOR_DESCRIPTOR)
        .set(CUDNN_ATTR_TENSOR_DATA_TYPE, data_type(element))
        .set(CUDNN_ATTR_TENSOR_DIMENSIONS, all(extents))
        .set(CUDNN_ATTR_TENSOR_STRIDES, all(strides))
        .set(CUDNN_ATTR_TENSOR_UNIQUE_ID, identifier)
        .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, std::int64_t{16})
        .set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, inside)
        .finalize();
  }
  return tensors;
}

Descriptor OperationGraph::finish() && {
  const std::vector<Descriptor> tensors = tensor_descriptors();
  std::vector<cudnnBackendDescriptor_t> raw;
  for (Operation& operation : operations_) {
    for (const auto& [name, tensor] : operation.tensors)
      operation.descriptor.set(name, tensors[tensor]);
    raw.push_back(operation.descriptor.finalize().get());
  }
  Descriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, std::span<const cudnnBackendDescriptor_t>(raw));
  graph.finalize();
  return graph;
}

}  // namespace ringtrain::cuda
