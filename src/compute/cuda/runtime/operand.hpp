#pragma once
#include <variant>

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

}  // namespace ringtrain::compute::cuda
