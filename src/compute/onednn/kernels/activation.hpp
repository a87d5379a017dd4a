#pragma once
#include <dnnl.hpp>
#include <optional>

#include "compute/onednn/isa.hpp"
#include "ringtrain/compute/operation.hpp"

namespace ringtrain::compute::onednn {

/// Whether a kernel of two variants takes the one that knows every activation. The other knows only
/// ReLU, which costs nothing there.
enum class Knows { relu, all };

/// f(x)
template <int B, Knows knows = Knows::all>
[[gnu::always_inline]] inline Vec<B> value_of(Activation f, Vec<B> x) {
  if constexpr (knows == Knows::relu) return f == Activation::relu ? relu<B>(x) : x;
  switch (f) {
    case Activation::none:
      return x;
    case Activation::relu:
      return relu<B>(x);
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
    case Activation::none:
      break;
  }
  return std::nullopt;
}

}  // namespace ringtrain::compute::onednn
