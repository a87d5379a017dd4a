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

constexpr float clamped(float v, float most) { return v < 0 ? 0 : v > most ? most : v; }
/// 1 + erf would have no digits far below 0.
template <class Number>
constexpr Number normal_distribution(Number x) {
  return Number(0.5) * std::erfc(x * Number(-0.70710678));
}
/// GELU's approximation is x * logistic(2 * what it takes the tanh of).
template <class Number>
constexpr Number gelu_gate(Number x) {
  return logistic(x * (Number(1.59576912) + Number(0.0713548163) * x * x));
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
    case Activation::relu6:
      return clamped(x, 6);
    case Activation::sigmoid:
      return logistic(x);
    case Activation::hard_sigmoid:
      return clamped(x + 3, 6) / 6;
    case Activation::hard_swish:
      return x * clamped(x + 3, 6) / 6;
    case Activation::gelu:
      return x * normal_distribution(x);
    case Activation::gelu_tanh:
      return x * gelu_gate(x);
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
    case Activation::relu6:
      return saved > 0 && saved < 6 ? dy : 0;
    case Activation::sigmoid:
      return dy * saved * (1 - saved);
    case Activation::hard_sigmoid:
      return saved > -3 && saved < 3 ? dy / 6 : 0;
    case Activation::hard_swish:
      return saved <= -3 ? 0 : saved >= 3 ? dy : dy * (saved / 3 + Number(0.5));
    case Activation::gelu:
      return dy * (normal_distribution(saved) +
                   saved * Number(0.39894228) * std::exp(saved * saved * Number(-0.5)));
    case Activation::gelu_tanh: {
      const Number s = gelu_gate(saved);
      return dy * s *
             (1 + saved * (1 - s) * (Number(1.59576912) + Number(0.214064449) * saved * saved));
    }
  }
  return dy;
}

}  // namespace ringtrain::compute::cuda::kernels
