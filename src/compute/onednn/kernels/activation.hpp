#pragma once
#include <cstddef>
#include <dnnl.hpp>
#include <iterator>
#include <optional>
#include <type_traits>
#include <utility>

#include "compute/onednn/isa.hpp"
#include "ringtrain/compute/operation.hpp"

namespace ringtrain::compute::onednn {

/// Whether a kernel of two variants takes the one that knows every activation. The other knows only
/// ReLU, which costs nothing there.
enum class Knows { relu, all };

/// The polynomial of x with these coefficients, that of the lowest power first, in pairs (Estrin's
/// scheme): as a chain of multiplications it would wait for each of them.
template <int B, std::size_t count>
[[gnu::always_inline]] inline Vec<B> in_pairs(Vec<B> x, const Vec<B> (&c)[count]) {
  if constexpr (count == 1) {
    return c[0];
  } else {
    Vec<B> pairs[(count + 1) / 2];
#pragma GCC unroll 8
    for (std::size_t i = 0; i < (count + 1) / 2; ++i)
      pairs[i] = 2 * i + 1 < count ? c[2 * i + 1] * x + c[2 * i] : c[2 * i];
    return in_pairs<B>(x * x, pairs);
  }
}
template <int B, class... Floats>
[[gnu::always_inline]] inline Vec<B> polynomial(Vec<B> x, Floats... c) {
  return in_pairs<B, sizeof...(c)>(x, {Vec<B>{} + c...});
}
/// 2^y of y from -127, where it becomes 0, to 127; NaN stays. Within 1 ulp, or 2^-13 for what
/// memory has as bf16.
template <int B, class T>
[[gnu::always_inline]] inline Vec<B> power_of_two(Vec<B> y) {
  const Vec<B> shifted = y + 0x1.8p23f;  // its last bits are the integer next to y
  const Vec<B> r = y - (shifted - 0x1.8p23f);
  const IntVec<B> power = (reinterpret_cast<IntVec<B>>(shifted) + 127) << 23;
  Vec<B> p;
  if constexpr (std::is_same_v<T, Bf16>)
    p = polynomial<B>(r, 0.999928098f, 0.693261035f, 0.242610764f, 0.0551710804f);
  else
    p = polynomial<B>(r, 1.00000007f, 0.693146967f, 0.240221198f, 0.0555071344f, 0.00967554059f,
                      0.00132764076f);
  return p * reinterpret_cast<Vec<B>>(power);
}
/// The nearest number from `least` to `most`, and NaN of NaN.
template <int B>
[[gnu::always_inline]] inline Vec<B> clamped(Vec<B> x, float least, float most) {
  x = x < least ? Vec<B>{} + least : x;
  return x > most ? Vec<B>{} + most : x;
}
/// e^x of x cut off at -87 and 88: within 2 ulp by a polynomial of degree 7 (Cephes' expf), or
/// 2^-13 for bf16.
template <int B, class T>
[[gnu::always_inline]] inline Vec<B> exponential(Vec<B> x) {
  x = clamped<B>(x, -87, 88);
  if constexpr (std::is_same_v<T, Bf16>) return power_of_two<B, T>(x * 1.44269504f);
  const Vec<B> shifted = x * 1.44269504f + 0x1.8p23f;  // its last bits are the power of two
  const Vec<B> n = shifted - 0x1.8p23f, r = x - n * 0.693359375f + n * 2.12194440e-4f;
  const Vec<B> p = polynomial<B>(r, 5.0000001201e-1f, 1.6666665459e-1f, 4.1665795894e-2f,
                                 8.3334519073e-3f, 1.3981999507e-3f, 1.9875691500e-4f);
  const IntVec<B> power = (reinterpret_cast<IntVec<B>>(shifted) + 127) << 23;
  return (p * (r * r) + (r + 1)) * reinterpret_cast<Vec<B>>(power);
}
/// 1 / x of x from 1 to 2^126. With 16 lanes a division takes more time than three instructions.
template <int B, class T>
[[gnu::always_inline]] inline Vec<B> reciprocal(Vec<B> x) {
  if constexpr (B == 16) {
    Vec<B> r;  // within 2^-14
    asm("vrcp14ps %1, %0" : "=v"(r) : "v"(x));
    if constexpr (std::is_same_v<T, float>) r *= 2 - x * r;
    return r;
  }
  return 1 / x;
}
template <int B, class T>
[[gnu::always_inline]] inline Vec<B> logistic(Vec<B> x) {
  return reciprocal<B, T>(1 + exponential<B, T>(-x));
}

/// The normal distribution's integral up to x. Below 0 it is 2^p(-x) with a polynomial p of degree
/// 10, fitted to its logarithm from -6.2 on, or 7 for bf16, from -9 on. There it is within 3e-6, or
/// 2^-13, of it; below, x times it is within 1e-13. Where p is -127 it becomes 0.
template <int B, class T>
[[gnu::always_inline]] inline Vec<B> normal_distribution(Vec<B> x) {
  constexpr bool bf16 = std::is_same_v<T, Bf16>;
  constexpr float farthest = bf16 ? 12.964f : 11.8866f;
  auto z = reinterpret_cast<Vec<B>>(reinterpret_cast<IntVec<B>>(x) & 0x7fffffff);  // |x|
  z = z > farthest ? Vec<B>{} + farthest : z;
  Vec<B> p;
  if constexpr (bf16)
    p = polynomial<B>(z, -1.00009846f, -1.14989273f, -4.61469893e-1f, -5.14462604e-2f,
                      7.50286957e-3f, -7.23605691e-4f, 4.03972087e-5f, -9.77753024e-7f);
  else
    p = polynomial<B>(z, -9.99999842e-1f, -1.15111248f, -4.59155267e-1f, -5.26316044e-2f,
                      7.21553727e-3f, -2.10157844e-4f, -1.82477995e-4f, 4.93015736e-5f,
                      -6.47102159e-6f, 4.53257472e-7f, -1.3492542e-8f);
  const Vec<B> q = power_of_two<B, T>(p);
  return x < 0 ? q : 1 - q;
}
/// GELU's approximation is x * logistic(2 * what it takes the tanh of).
template <int B, class T>
[[gnu::always_inline]] inline Vec<B> gelu_gate(Vec<B> x) {
  return logistic<B, T>(x * (1.59576912f + 0.0713548163f * x * x));
}

/// f(x), with as many digits as memory has of T.
template <int B, Knows knows = Knows::all, class T = float>
[[gnu::always_inline]] inline Vec<B> value_of(Activation f, Vec<B> x) {
  if constexpr (knows == Knows::relu) return f == Activation::relu ? relu<B>(x) : x;
  switch (f) {
    case Activation::none:
      return x;
    case Activation::relu:
      return relu<B>(x);
    case Activation::silu:
      return x * logistic<B, T>(x);
    case Activation::relu6:
      return clamped<B>(x, 0, 6);
    case Activation::sigmoid:
      return logistic<B, T>(x);
    case Activation::hard_sigmoid:
      return clamped<B>(x + 3, 0, 6) * (1 / 6.f);
    case Activation::hard_swish:
      return x * clamped<B>(x + 3, 0, 6) * (1 / 6.f);
    case Activation::gelu:
      return x * normal_distribution<B, T>(x);
    case Activation::gelu_tanh:
      return x * gelu_gate<B, T>(x);
  }
  return x;
}

/// f'(x) * dy. `saved` is f(x) where the slope follows from it (ActivationFacts), else x.
template <int B, Knows knows = Knows::all, class T = float>
[[gnu::always_inline]] inline Vec<B> gradient_of(Activation f, Vec<B> saved, Vec<B> dy) {
  if constexpr (knows == Knows::relu) return f == Activation::none ? dy : saved > 0 ? dy : Vec<B>{};
  switch (f) {
    case Activation::none:
      return dy;
    case Activation::relu:
      return saved > 0 ? dy : Vec<B>{};
    case Activation::silu: {
      const Vec<B> s = logistic<B, T>(saved);
      return dy * s * (1 + saved * (1 - s));
    }
    case Activation::relu6:
      return (saved > 0) & (saved < 6) ? dy : Vec<B>{};
    case Activation::sigmoid:
      return dy * saved * (1 - saved);
    case Activation::hard_sigmoid:
      return (saved > -3) & (saved < 3) ? dy * (1 / 6.f) : Vec<B>{};
    case Activation::hard_swish:
      return saved <= -3 ? Vec<B>{} : saved >= 3 ? dy : dy * (saved * (1 / 3.f) + 0.5f);
    case Activation::gelu: {
      const Vec<B> y = saved * saved * -0.72134752f,  // 2^y = e^(-x^2/2)
          density = 0.39894228f * power_of_two<B, T>(y < -127 ? Vec<B>{} - 127 : y);
      return dy * (normal_distribution<B, T>(saved) + saved * density);
    }
    case Activation::gelu_tanh: {
      const Vec<B> s = gelu_gate<B, T>(saved);
      return dy * s * (1 + saved * (1 - s) * (1.59576912f + 0.214064449f * saved * saved));
    }
  }
  return dy;
}

/// Whether f takes more time than memory.
constexpr bool has_exponential(Activation f) {
  return f == Activation::silu || f == Activation::sigmoid || f == Activation::gelu ||
         f == Activation::gelu_tanh;
}

/// use(f) with f as a constant, so that a loop in there does not ask for it again and again.
template <Knows knows, class F>
[[gnu::always_inline]] inline void with_constant(Activation f, const F& use) {
  constexpr std::size_t count = knows == Knows::relu ? 2 : std::size(activation_facts);
  [&]<std::size_t... n>(std::index_sequence<n...>) __attribute__((always_inline)) {
    ((f == Activation(n) ? use(std::integral_constant<Activation, Activation(n)>()) : void()), ...);
  }
  (std::make_index_sequence<count>());
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
