#pragma once
#include "ringtrain/compute/step.hpp"

namespace ringtrain::model {

/// A derivative of `norm` with the shapes, and slices, of the real one, to ask a backend about.
inline compute::BatchNormBackward some_backward(const compute::BatchNormForward& norm) {
  const bool from_y = norm.then != compute::Activation::none && norm.residual != compute::no_tensor;
  const compute::TensorId y = from_y ? norm.y : compute::no_tensor;
  return {norm.x,     y,         norm.y,       compute::no_tensor, norm.x, compute::no_tensor,
          norm.gamma, norm.beta, norm.epsilon, norm.then};
}

}  // namespace ringtrain::model
