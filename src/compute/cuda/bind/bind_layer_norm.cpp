#include "compute/cuda/bind/bind.hpp"
#include "compute/cuda/kernels/arguments/layer_norm.hpp"

namespace ringtrain::compute::cuda {
namespace {

template <class Kind>
kernels::LayerNormOperands layer_norm_operands(const Kind& s, const Binder& b) {
  return {b.element(),          b.pixels(s.x), b.channels(s.x), b.parameters(s.gamma),
          b.parameters(s.beta), s.epsilon,     b.at(s.x)};
}

}  // namespace

template <>
Action bind(const LayerNormForward& s, Binder& b) {
  return [&b, o = layer_norm_operands(s, b), y = b.at(s.y)] {
    kernels::layer_norm_forward(o, y, b.stream());
  };
}

template <>
Action bind(const LayerNormBackward& s, Binder& b) {
  b.reserve(kernels::layer_norm_workspace(b.pixels(s.x), b.channels(s.x)));
  return [&b, o = layer_norm_operands(s, b), dy = b.at(s.dy), dx = b.at(s.dx),
          dgamma = b.gradients(s.gamma), dbeta = b.gradients(s.beta)] {
    kernels::layer_norm_backward(o, dy, dx, dgamma, dbeta, b.floats(), b.stream());
  };
}

}  // namespace ringtrain::compute::cuda
