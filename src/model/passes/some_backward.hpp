#pragma once
#include "ringtrain/compute/step.hpp"

namespace ringtrain {

/// A derivative of `norm` with the shapes, and slices, of the real one, to ask a backend about.
inline BatchNormBackward some_backward(const BatchNormForward& norm) {
  const TensorId y = norm.relu && norm.residual != no_tensor ? norm.y : no_tensor;
  return {norm.x,    y,          norm.y,    no_tensor,    norm.x,
          no_tensor, norm.gamma, norm.beta, norm.epsilon, norm.relu};
}

}  // namespace ringtrain
