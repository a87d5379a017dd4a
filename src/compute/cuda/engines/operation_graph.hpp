#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <variant>
#include <vector>

#include "compute/cuda/runtime/cudnn.hpp"
#include "ringtrain/base/memory/view.hpp"
#include "ringtrain/compute/step.hpp"

namespace ringtrain::compute::cuda {

// What a kernel reads or writes, by its name in the schedule; a program knows where that lies.

struct TensorOperand {
  TensorId id;
};
/// Part of a vector, from its number `first` on; `narrow`: its copy in the type of activations.
struct VectorOperand {
  VectorId id;
  int first = 0;
  bool narrow = false;
};
/// Parameters; `narrow`: their copy in the type of activations.
struct ParameterOperand {
  ParameterRange range;
  bool narrow = false;
};
/// A BatchNorm's beta, by 1e-30 lower, which changes it where it is 0. cuDNN's gradient of a ReLU
/// passes where the ReLU's input is 0; ours, as everybody's, does not. All of a residual block's
/// are 0 at first, where gamma and beta start at 0 and its input went through a ReLU.
struct LoweredBetaOperand {
  ParameterRange range;
};
/// Gradients of parameters, fp32.
struct GradientOperand {
  ParameterRange range;
};
/// The weights of a convolution as it wants them, and their gradient as it writes that: both in the
/// type of activations.
struct WeightsOperand {
  ParameterRange range;
};
struct WeightGradientOperand {
  ParameterRange range;
};
/// As many fp32 ones, which are only read, or numbers that nobody wants, which are only written.
struct OnesOperand {
  int count;
};
struct UnwantedOperand {
  int count;
};

using Operand = std::variant<TensorOperand, VectorOperand, ParameterOperand, LoweredBetaOperand,
                             GradientOperand, WeightsOperand, WeightGradientOperand, OnesOperand,
                             UnwantedOperand>;

/// A few operations that are to run as one kernel, built as an expression: every member adds an
/// operation and returns its result. All tensors are NHWC; arithmetic is fp32 (tf32 for fp32
/// convolutions where the engine has it). A result stays inside of the kernel unless store()d. Pure
/// data: cuDNN makes a kernel of it (describe()), and tests can run it as it stands.
class OperationGraph {
 public:
  /// Index into values().
  using Tensor = std::size_t;
  using Extents = std::array<std::int64_t, 4>;  ///< N, C, H, W, whatever the memory order

  struct Value {
    Extents extents;
    Element element;
    std::optional<Operand> operand;  ///< what it is in memory; none stays inside of the kernel
    std::int64_t pitch;              ///< elements from pixel to pixel: more than C in a slice

    /// Elements from one to the next, as the extents.
    Extents strides() const {
      return {extents[2] * extents[3] * pitch, 1, extents[3] * pitch, pitch};
    }
  };
  enum class Kind {
    add,              // a, b, y
    multiply,         // a, b, y
    subtract,         // a, b, y
    relu,             // x, y
    relu_gradient,    // y, dy, dx
    convolution,      // x, w, y
    input_gradient,   // dy, w, dx
    weight_gradient,  // dy, x, dw
    statistics,       // x, sum, sum of squares
    batch_norm_sums,  // dy, x, mean, inverse deviation, gamma, dgamma, dbeta, dy scale, x scale,
                      // shift
  };
  /// Where in an operation's tensors its results begin.
  static std::size_t first_result(Kind kind);
  struct Operation {
    Kind kind;
    std::vector<Tensor> tensors;  ///< as named beside the kind
    Window window = {};           ///< of the three convolutions
  };

  /// `between`: the type in which results that stay inside are handed on.
  OperationGraph(Element io, Element between) : io_(io), between_(between) {}

  /// What the kernel reads.
  Tensor input(const Shape& shape, Operand operand) { return tensor(nchw(shape), io_, operand); }
  Tensor vector(int channels, Operand operand, Element element = Element::fp32) {
    return tensor({1, channels, 1, 1}, element, operand);
  }
  /// Convolution weights out x height x width x in.
  Tensor weights(int out, const Window& window, int in, Operand operand) {
    return tensor({out, in, window.height, window.width}, io_, operand);
  }

  Tensor add(Tensor a, Tensor b) { return pointwise(Kind::add, a, b); }
  Tensor multiply(Tensor a, Tensor b) { return pointwise(Kind::multiply, a, b); }
  Tensor subtract(Tensor a, Tensor b) { return pointwise(Kind::subtract, a, b); }
  Tensor relu(Tensor x);
  /// dy where y > 0, else 0.
  Tensor relu_gradient(Tensor dy, Tensor y);
  Tensor convolution(const Window& window, Tensor x, Tensor w, const Shape& y);
  Tensor input_gradient(const Window& window, Tensor dy, Tensor w, const Shape& dx);
  Tensor weight_gradient(const Window& window, Tensor dy, Tensor x, int out, int in);
  /// Writes the sum of x and of x^2 over all pixels, two fp32 vectors.
  void statistics(Tensor x, Operand sum, Operand squares);
  /// The fp32 vectors that batch_norm_sums() reads and writes.
  struct BatchNormVectors {
    Tensor mean, inverse_deviation, gamma;
    Operand dgamma, dbeta, g_scale, x_scale, shift;
  };
  /// Writes dgamma, dbeta and, of a BatchNorm's input gradient, the coefficients of dy and of x and
  /// the constant.
  void batch_norm_sums(Tensor dy, Tensor x, const BatchNormVectors& vectors);
  /// The kernel also writes this result, in the graph's io type.
  void store(Tensor result, Operand operand);
  /// These tensors are slices of wider ones.
  void set_pitches(const std::map<TensorId, std::int64_t>& pitches);

  const std::vector<Value>& values() const { return values_; }
  const std::vector<Operation>& operations() const { return operations_; }
  /// Of each value, whether an operation writes it.
  std::vector<bool> written() const;

 private:
  static Extents nchw(const Shape& shape) {
    return {shape.batch, shape.channels, shape.height, shape.width};
  }
  Tensor tensor(const Extents& extents, Element element, std::optional<Operand> operand);
  Tensor result(const Extents& extents) { return tensor(extents, between_, std::nullopt); }
  Tensor pointwise(Kind kind, Tensor a, Tensor b);

  Element io_, between_;
  std::vector<Value> values_;
  std::vector<Operation> operations_;
};

/// cuDNN's description of `graph`. The identifier of a tensor is 1 more than its index in values().
/// Throws Error where cuDNN does not accept it. `handle`: of the GPU that it is for; null: none
/// here.
Descriptor describe(const OperationGraph& graph, cudnnHandle_t handle = nullptr);

}  // namespace ringtrain::compute::cuda
