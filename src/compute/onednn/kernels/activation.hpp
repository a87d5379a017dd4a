#pragma once
#include <dnnl.hpp>
#include <optional>

#include "compute/onednn/isa.hpp"
#include "ringtrain/compute/operation.hpp"

namespace ringtrain::compute::onednn {

/// Whether a kernel of two variants takes the one that knows every activation. The other knows only
/// ReLU, which costs nothing there.
enum class Knows { relu, all };

/// e^x within 2 ulp, by a polynomial of degree 7 (Cephes' expf), of x cut off at -87 and 88.
template <int B>
[[gnu::always_inline]] inline Vec<B> exponential(Vec<B> x) {
  x = x < -87.f ? Vec<B>{} - 87.f : x > 88.f ? Vec<B>{} + 88.f : x;
  const Vec<B> shifted = x * 1.44269504f + 0x1.8p23f;  // its last bits are the power of two
  const Vec<B> n = shifted - 0x1.8p23f, r = x - n * 0.693359375f + n * 2.12194440e-4f;
  Vec<B> p = Vec<B>{} + 1.9875691500e-4f;
  for (const float c :
       {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f})
    p = p * r + c;
  const IntVec<B> power = (reinterpret_cast<IntVec<B>>(shifted) + 127) << 23;
  return (p * (r * r) + (r + 1)) * reinterpret_cast<Vec<B>>(power);
}
template <int B>
[[gnu::always_inline]] inline Vec<B> logistic(Vec<B> x) {
  return 1 / (1 + exponential<B>(-x));
}

/// min(max(x, 0), most), and NaN where x is NaN.
template <int B>
[[gnu::always_inline]] inline Vec<B> clamped(Vec<B> x, float most) {
  return x < 0 ? Vec<B>{} : x > most ? Vec<B>{} + most : x;
}
/// The normal distribution's integral up to x, where `e` is e^(-x^2/2): within 1e-6 of it.
template <int B>
[[gnu::always_inline]] inline Vec<B> normal_distribution(Vec<B> x, Vec<B> e) {
  const Vec<B> t = 1 / ((x < 0 ? -x : x) * 0.24748737f + 1);
  Vec<B> q = Vec<B>{} + 0.0384014896f;
  for (const float c : {-0.15893066f, 0.181466818f, -0.0277131201f, 0.0870249794f, 0.146038841f,
                        0.151187346f, 0.187902153f, 0.197138384f, 0.197483777f})
    q = q * t + c;
  q *= t * e * 0.5f;
  return x < 0 ? q : 1 - q;
}
/// GELU's approximation is x * logistic(2 * what it takes the tanh of).
template <int B>
[[gnu::always_inline]] inline Vec<B> gelu_gate(Vec<B> x) {
  return logistic<B>(x * (1.59576912f + 0.0713548163f * x * x));
}

/// f(x)
template <int B, Knows knows = Knows::all>
[[gnu::always_inline]] inline Vec<B> value_of(Activation f, Vec<B> x) {
  if constexpr (knows == Knows::relu) return f == Activation::relu ? relu<B>(x) : x;
  switch (f) {
    case Activation::none:
      return x;
    case Activation::relu:
      return relu<B>(x);
    case Activation::silu:
      return x * logistic<B>(x);
    case Activation::relu6:
      return clamped<B>(x, 6);
    case Activation::sigmoid:
      return logistic<B>(x);
    case Activation::hard_sigmoid:
      return clamped<B>(x + 3, 6) / 6;
    case Activation::hard_swish:
      return x * clamped<B>(x + 3, 6) / 6;
    case Activation::gelu:
      return x * normal_distribution<B>(x, exponential<B>(x * x * -0.5f));
    case Activation::gelu_tanh:
      return x * gelu_gate<B>(x);
  }
  return x;
}

/// f'(x) * dy. `saved` is f(x) where the slope follows from it (ActivationFacts), else x.
template <int B, Knows knows = Knows::all>
[[gnu::always_inline]] inline Vec<B> gradient_of(Activation f, Vec<B> saved, Vec<B> dy) {
  if constexpr (knows == Knows::relu) return f == Activation::none ? dy : saved > 0 ? dy : Vec<B>{};
  switch (f) {
    case Activation::none:
      return dy;
    case Activation::relu:
      return saved > 0 ? dy : Vec<B>{};
    case Activation::silu: {
      const Vec<B> s = logistic<B>(saved);
      return dy * s * (1 + saved * (1 - s));
    }
    case Activation::relu6:
      return (saved > 0) & (saved < 6) ? dy : Vec<B>{};
    case Activation::sigmoid:
      return dy * saved * (1 - saved);
    case Activation::hard_sigmoid:
      return (saved > -3) & (saved < 3) ? dy / 6 : Vec<B>{};
    case Activation::hard_swish:
      return saved <= -3 ? Vec<B>{} : saved >= 3 ? dy : dy * (saved / 3 + 0.5f);
    case Activation::gelu: {
      const Vec<B> e = exponential<B>(saved * saved * -0.5f);
      return dy * (normal_distribution<B>(saved, e) + saved * 0.39894228f * e);
    }
    case Activation::gelu_tanh: {
      const Vec<B> s = gelu_gate<B>(saved);
      return dy * s * (1 + saved * (1 - s) * (1.59576912f + 0.214064449f * saved * saved));
    }
  }
  return dy;
}

/// How oneDNN applies `f` behind a convolution; nullopt where it cannot.
struct Eltwise {
  dnnl::algorithm algorithm;
  float alpha = 0, beta = 0;
};
inline std::optional<Eltwise> eltwise_of(Activation f) {
  switch (f) {
    case Activation::relu:
      return Eltwise{dnnl::algorithm::eltwise_relu};
    case Activation::silu:
      return Eltwise{dnnl::algorithm::eltwise_swish, 1};
    case Activation::relu6:
      return Eltwise{dnnl::algorithm::eltwise_clip, 0, 6};
    case Activation::sigmoid:
      return Eltwise{dnnl::algorithm::eltwise_logistic};
    case Activation::hard_swish:
      return Eltwise{dnnl::algorithm::eltwise_hardswish, 1.f / 6, 0.5f};
    case Activation::gelu:
      return Eltwise{dnnl::algorithm::eltwise_gelu_erf};
    case Activation::gelu_tanh:
      return Eltwise{dnnl::algorithm::eltwise_gelu_tanh};
    case Activation::hard_sigmoid:  // oneDNN 2.6 has none
    case Activation::none:
      break;
  }
  return std::nullopt;
}

}  // namespace ringtrain::compute::onednn
