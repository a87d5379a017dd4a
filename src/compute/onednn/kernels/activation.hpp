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
    case Activation::none:
      break;
  }
  return std::nullopt;
}

}  // namespace ringtrain::compute::onednn
