#pragma once
#include <cmath>
#include <type_traits>

#include "ringtrain/compute/operation.hpp"

namespace ringtrain::compute::cuda::kernels {

/// max(v, 0) that lets through what is no number.
constexpr float rectify(float v) { return v < 0 ? 0 : v; }

/// Calls use(all), a std::bool_constant: whether a kernel takes its variant that knows every
/// activation. The other knows only ReLU, and has its registers.
template <class Use>
void with_activations(Activation f, Use use) {
  if (is_relu_or_none(f))
    use(std::false_type());
  else
    use(std::true_type());
}

template <class Number>
constexpr Number logistic(Number x) {
  return 1 / (1 + std::exp(-x));
}

/// f(x). A template, as is all that calls functions which are not constexpr.
template <bool all = true, class Number>
constexpr Number value_of(Activation f, Number x) {
  if constexpr (!all) return f == Activation::relu ? rectify(x) : x;
  switch (f) {
    case Activation::none:
      return x;
    case Activation::relu:
      return rectify(x);
    case Activation::silu:
      return x * logistic(x);
  }
  return x;
}

/// f'(x) * dy. `saved` is f(x) where the slope follows from it (ActivationFacts), else x.
template <bool all = true, class Number>
constexpr Number gradient_of(Activation f, Number saved, Number dy) {
  if (f == Activation::none) return dy;
  if constexpr (!all) return saved > 0 ? dy : 0;
  switch (f) {
    case Activation::none:
    case Activation::relu:
      return saved > 0 ? dy : 0;
    case Activation::silu:
      return dy * logistic(saved) * (1 + saved * (1 - logistic(saved)));
  }
  return dy;
}

}  // namespace ringtrain::compute::cuda::kernels
