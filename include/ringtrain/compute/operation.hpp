#pragma once
#include <cstdint>
#include <iterator>
#include <optional>
#include <string_view>

#include "ringtrain/compute/shape.hpp"

namespace ringtrain::compute {

// The attributes of operations, each once: a graph's operation, the steps that it becomes and the
// kernels that run them hold the same one.

/// An elementwise function. A new one is a word here, a row in `activation_facts`, and its formulas
/// in the three backends.
enum class Activation : std::uint8_t {
  none,
  relu,
  silu,
  relu6,
  sigmoid,
  hard_sigmoid,
  hard_swish,
  gelu,
  gelu_tanh,
};

struct ActivationFacts {
  std::string_view name;  ///< timm's, and the word of model files
  /// Whether the slope follows from the output, so that the input need not be kept.
  bool slope_of_output;
  bool keeps_zero = true;  ///< f(0) = 0
};
/// By Activation.
inline constexpr ActivationFacts activation_facts[] = {
    {"none", true},           {"relu", true},
    {"silu", false},   // also called swish (Elfwing et al. 2017)
    {"relu6", false},  // 16-bit outputs just below 6 would round to it
    {"sigmoid", true, false}, {"hard_sigmoid", false, false},
    {"hard_swish", false},    {"gelu", false},  // exact (Hendrycks and Gimpel 2016)
    {"gelu_tanh", false},                       // PyTorch's approximate="tanh"
};

constexpr const ActivationFacts& facts_of(Activation f) {
  return activation_facts[static_cast<std::size_t>(f)];
}
constexpr std::string_view name_of(Activation f) { return facts_of(f).name; }
/// Nothing for "none".
constexpr std::optional<Activation> activation_named(std::string_view name) {
  for (std::size_t f = 1; f < std::size(activation_facts); ++f)
    if (activation_facts[f].name == name) return static_cast<Activation>(f);
  return std::nullopt;
}
/// Whether kernels that know nothing but ReLU can apply it.
constexpr bool is_relu_or_none(Activation f) {
  return f == Activation::none || f == Activation::relu;
}

/// The window of a convolution. `groups`: channels of x, and of y, are in so many groups that do
/// not see each other. `dilation`: a filter's pixels lie so far apart.
struct ConvolutionShape : Window {
  constexpr ConvolutionShape(const Window& window = {}, int of_groups = 1, int of_dilation = 1)
      : Window(window), groups(of_groups), dilation(of_dilation) {}
  int groups, dilation;
  /// Whether it is a window that slides over all channels, without gaps.
  bool is_plain() const { return groups == 1 && dilation == 1; }
  friend bool operator==(const ConvolutionShape&, const ConvolutionShape&) = default;
};

namespace attributes {

/// Local response normalisation across channels (Krizhevsky et al. 2012):
/// y = x / (bias + alpha * sum of squares over channels c-radius..c+radius)^beta.
struct Lrn {
  int radius = 4;
  float bias = 1, alpha = 0.001f / 9, beta = 0.75f;
};

/// y = x / keep with probability keep, else 0. Element i of a sample is kept by word i of the
/// Philox stream (seed, dropout, layer + 256 * the sample's epoch, sample). `of_sample`: word 0
/// keeps all elements or none, which is stochastic depth (Huang et al. 2016).
struct Dropout {
  float keep = 0.5f;
  std::uint32_t layer = 0;
  bool of_sample = false;
};

}  // namespace attributes
}  // namespace ringtrain::compute
