#pragma once
#include <array>
#include <utility>
#include <vector>

#include "compute/cuda/cudnn.hpp"
#include "ringtrain/compute/element.hpp"
#include "ringtrain/compute/step.hpp"

namespace ringtrain::cuda {

cudnnDataType_t data_type(Element element);

/// A few operations that cuDNN is to run as one kernel, built as an expression: every member adds
/// an operation and returns its result. All tensors are NHWC; arithmetic is fp32 (tf32 for fp32
/// convolutions where the engine has it). A result stays inside of the kernel unless store()d.
class OperationGraph {
 public:
  /// Index of a tensor; its cuDNN identifier is 1 more.
  using Tensor = std::size_t;

  /// `between`: the type in which results that stay inside are handed on.
  OperationGraph(Element io, Element between) : io_(io), between_(between) {}

  /// What the kernel reads.
  Tensor input(const Shape& shape) { return tensor(nchw(shape), io_, false); }
  Tensor vector(int channels, Element element = Element::fp32);
  /// Convolution weights out x height x width x in.
  Tensor weights(int out, const Window& window, int in);

  Tensor add(Tensor a, Tensor b) { return pointwise(CUDNN_POINTWISE_ADD, a, b); }
  Tensor multiply(Tensor a, Tensor b) { return pointwise(CUDNN_POINTWISE_MUL, a, b); }
  Tensor subtract(Tensor a, Tensor b) { return pointwise(CUDNN_POINTWISE_SUB, a, b); }
  Tensor relu(Tensor x);
  /// dy where y > 0, else 0.
  Tensor relu_gradient(Tensor dy, Tensor y);
  Tensor convolution(const Window& window, Tensor x, Tensor w, const Shape& y);
  Tensor input_gradient(const Window& window, Tensor dy, Tensor w, const Shape& dx);
  Tensor weight_gradient(const Window& window, Tensor dy, Tensor x, int out, int in);
  /// Writes the sum of x and of x^2 over all pixels, two fp32 vectors.
  void statistics(Tensor x);
  /// Writes five fp32 vectors: dgamma, dbeta and, of a BatchNorm's input gradient, the coefficients
  /// of dy and of x and the constant.
  void batch_norm_sums(Tensor dy, Tensor x, Tensor mean, Tensor inverse_deviation, Tensor gamma);
  /// The kernel also writes this result, in the graph's io type.
  void store(Tensor result);

  /// The finished graph; the builder is used up. Throws Error where cuDNN does not accept it.
  Descriptor finish() &&;

 private:
  using Extents = std::array<std::int64_t, 4>;  // N, C, H, W, whatever the memory order
  struct Value {
    Extents extents;
    Element element;
    bool inside;
  };
  struct Operation {
    Descriptor descriptor;
    std::vector<std::pair<cudnnBackendAttributeName_t, Tensor>> tensors;
  };

  static Extents nchw(const Shape& shape);
  Tensor tensor(const Extents& extents, Element element, bool inside);
  Tensor result(const Extents& extents) { return tensor(extents, between_, true); }
  Tensor pointwise(cudnnPointwiseMode_t mode, Tensor a, Tensor b);
  std::vector<Descriptor> tensor_descriptors() const;

  const Element io_, between_;
  std::vector<Value> values_;
  std::vector<Operation> operations_;
};

}  // namespace ringtrain::cuda
