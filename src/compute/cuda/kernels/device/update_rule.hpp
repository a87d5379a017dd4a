#pragma once
#include <cmath>

#include "compute/cuda/kernels/arguments/optimizer.hpp"

namespace ringtrain::cuda::kernels::work {

/// One parameter and what belongs to it.
struct Parameter {
  float w, g, slot0, slot1;
};

/// How the parameters of a segment decay: through the gradient, or, adamw, by shrinking. And, lars,
/// how fast they move.
struct SegmentDecay {
  float decay, shrink, rate;
  double square;  ///< what w^2 is multiplied by in the L2 loss
};

/// The rules, one parameter at a time.
template <class Factors>
constexpr void apply_rule(Rule rule, Parameter& p, const Factors& f, const SegmentDecay& segment) {
  const float d = f.scale * p.g + segment.decay * p.w;
  switch (rule) {
    case Rule::sgd:
      p.w -= f.lr * d;
      return;
    case Rule::momentum:
      p.slot0 = f.momentum * p.slot0 + d;
      p.w -= f.lr * p.slot0;
      return;
    case Rule::nesterov:
      p.slot0 = f.momentum * p.slot0 + d;
      p.w -= f.lr * (d + f.momentum * p.slot0);
      return;
    case Rule::rmsprop:
      p.slot0 = f.mean_square_decay * p.slot0 + (1 - f.mean_square_decay) * (d * d);
      p.slot1 = f.momentum * p.slot1 + f.lr * d / std::sqrt(p.slot0 + f.epsilon);
      p.w -= p.slot1;
      return;
    case Rule::adam:
    case Rule::adamw:
      p.slot0 = f.beta1 * p.slot0 + (1 - f.beta1) * d;
      p.slot1 = f.beta2 * p.slot1 + (1 - f.beta2) * (d * d);
      p.w = segment.shrink * p.w - f.lr * p.slot0 / (std::sqrt(p.slot1) * f.root_scale + f.epsilon);
      return;
    case Rule::lars:
      p.slot0 = f.momentum * p.slot0 + segment.rate * d;
      p.w -= p.slot0;
      return;
  }
}

}  // namespace ringtrain::cuda::kernels::work
