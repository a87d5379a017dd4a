#pragma once
#include <cmath>
#include <optional>
#include <vector>

#include "ringtrain/compute/step.hpp"
#include "support/activations.hpp"
#include "support/catch.hpp"
#include "support/random_batch.hpp"

namespace ringtrain {

/// Steps and the tensors that they work on, for a comparison of a backend with the reference.
struct StepCase {
  std::vector<compute::Shape> tensors;
  compute::TensorId
      first_written;  // it and all tensors after it are results, those before are random
  std::vector<compute::Step> steps;
  std::size_t parameters = 0, statistics = 0;
  std::vector<int> vectors = {};
};

inline int sizes_of_channels() { return GENERATE(1, 3, 8, 17, 64); }

/// The windows of pools: with ties, padding on one side, the whole image.
inline compute::Window pool_windows() {
  return GENERATE(compute::Window{3, 3, 2, 2, 0, 0, 1, 1}, compute::Window{2, 2, 2, 2},
                  compute::Window{3, 3, 1, 1, 1, 1, 1, 1}, compute::Window{6, 8, 1, 1},
                  compute::Window{3, 3, 2, 2, 1, 1, 1, 1}, compute::Window{5, 5, 3, 3},
                  compute::Window{2, 2, 3, 3}, compute::Window{3, 2, 1, 2, 1, 0, 1, 1});
}

/// What a window makes of images of shape `x`.
inline compute::Shape after(const compute::Window& w, const compute::Shape& x, int channels) {
  const auto extent = [](int in, int before, int behind, int kernel, int stride) {
    return (in + before + behind - kernel) / stride + 1;
  };
  return {x.batch, extent(x.height, w.top, w.bottom, w.height, w.stride_y),
          extent(x.width, w.left, w.right, w.width, w.stride_x), channels};
}

/// A convolution, forward and both gradients. Its parameters begin at `offset`, which may be odd.
inline StepCase convolution_case(const compute::ConvolutionShape& window, const compute::Shape& x,
                                 int out, std::size_t offset, bool bias, compute::Activation then) {
  const compute::Shape y = after(window, x, out);
  const std::size_t weights =
      std::size_t(out) * window.height * window.width * x.channels / window.groups;
  const compute::ParameterRange w{offset, weights};
  std::optional<compute::ParameterRange> b;
  if (bias) b = {offset + weights, std::size_t(out)};
  return {{x, y, y, x},
          2,
          {compute::ConvolutionForward{window, 0, 2, w, b, then},
           compute::ConvolutionInputGradient{window, 1, 3, w},
           compute::ConvolutionWeightGradient{window, 0, 1, w, b}},
          offset + weights + out};
}

/// Likewise, a matrix product of whole images.
inline StepCase matrix_product_case(const compute::Shape& x, int out, bool bias,
                                    compute::Activation then) {
  const compute::Shape y{x.batch, 1, 1, out};
  const std::size_t weights = out * x.features();
  const compute::ParameterRange w{0, weights};
  std::optional<compute::ParameterRange> b;
  if (bias) b = {weights, std::size_t(out)};
  return {{x, y, y, x},
          2,
          {compute::MatrixProductForward{0, 2, w, b, then},
           compute::MatrixProductInputGradient{1, 3, w},
           compute::MatrixProductWeightGradient{0, 1, w, b}},
          weights + out};
}

/// An activation, its gradient, and sums with and without it.
inline StepCase pointwise_case(const compute::Shape& s, compute::Activation f) {
  const compute::TensorId saved = facts_of(f).slope_of_output ? 2 : 0;
  return {{s, s, s, s, s, s},
          2,
          {compute::Pointwise{f, 0, 2}, compute::PointwiseBackward{f, saved, 1, 3},
           compute::Add{0, 1, 4}, compute::Add{0, 1, 5, f}}};
}

/// A factor for each channel of an image, and both gradients.
inline StepCase scale_case(const compute::Shape& x) {
  const compute::Shape s{x.batch, 1, 1, x.channels};
  return {{x, s, x, x, x, s, s, x},
          3,
          {compute::ScaleForward{0, 1, 3}, compute::ScaleBackward{0, 1, 2, 4, 5},
           compute::ScaleBackward{0, 1, 2, compute::no_tensor, 6},
           compute::ScaleBackward{0, 1, 2, 7, compute::no_tensor}}};
}

/// Its parameters begin at an odd place.
inline StepCase layer_norm_case(const compute::Shape& s, float epsilon) {
  const std::size_t c = s.channels;
  const compute::ParameterRange gamma{1, c}, beta{1 + c, c};
  return {{s, s, s, s},
          2,
          {compute::LayerNormForward{0, 2, gamma, beta, epsilon},
           compute::LayerNormBackward{0, 1, 3, gamma, beta, epsilon}},
          1 + 2 * c};
}

struct BatchNormForm {
  bool gamma;
  compute::Activation then;
  bool residual, two_gradients;
  bool activated() const { return then != compute::Activation::none; }
  /// Whether there is a backward step: of a sum, the slope must follow from the output.
  bool has_gradient() const { return !residual || facts_of(then).slope_of_output; }
};

inline StepCase batch_norm_case(const compute::Shape& s, const BatchNormForm& form) {
  const std::size_t c = s.channels;
  std::optional<compute::ParameterRange> scale;
  if (form.gamma) scale = {1 + c, c};
  const auto where = [](bool there, compute::TensorId id) {
    return there ? id : compute::no_tensor;
  };
  compute::BatchNormForward forward{0, 4, where(form.residual, 1), scale, {1, c}, {2, 2 * c}};
  forward.then = form.then;
  forward.unbiased = form.gamma;
  compute::BatchNormBackward backward{0,     where(form.activated() && form.residual, 4),
                                      2,     where(form.two_gradients, 3),
                                      5,     where(form.residual, 6),
                                      scale, {1, c}};
  backward.then = form.then;
  return {std::vector<compute::Shape>(form.residual ? 7 : 6, s),
          4,
          {forward, backward},
          1 + 2 * c,
          2 + 2 * c};
}

/// The names of one BatchNorm's vectors from `first` on, of eight.
struct NormVectors {
  explicit NormVectors(compute::VectorId first) : sums(first) {}
  static std::vector<int> extents(int channels) {
    std::vector<int> extents(8, channels);
    extents[0] *= 2;
    return extents;
  }
  compute::VectorId sums, scale = sums + 1, bias = sums + 2, mean = sums + 3, inverse = sums + 4,
                          g_scale = sums + 5, x_scale = sums + 6, shift = sums + 7;
};

/// One BatchNorm in pieces. Its parameters are gamma, where there is one, and beta.
struct NormInPieces {
  compute::TensorId x;
  std::size_t pixels, channels;
  compute::ParameterRange beta;
  compute::StatisticsRange statistics;
  NormVectors v;
  std::optional<compute::ParameterRange> gamma = std::nullopt;

  compute::BatchNormFinalize finalize() const {
    return {.sums = v.sums,
            .count = pixels,
            .gamma = gamma,
            .beta = beta,
            .statistics = statistics,
            .scale = v.scale,
            .bias = v.bias,
            .mean = v.mean,
            .inverse_deviation = v.inverse};
  }
  compute::AppliedNorm applied(compute::Activation then,
                               compute::TensorId residual = compute::no_tensor) const {
    return {.scale = v.scale, .bias = v.bias, .residual = residual, .then = then};
  }
  compute::BatchNormSums sums(compute::Activation then, compute::TensorId y, compute::TensorId skip,
                              compute::TensorId g) const {
    return {x,       y,      skip,   g,         then,      gamma,     beta,   pixels,
            v.scale, v.bias, v.mean, v.inverse, v.g_scale, v.x_scale, v.shift};
  }
  compute::BatchNormBackwardApply gradient(compute::TensorId g, compute::TensorId dx) const {
    return {g, x, dx, v.g_scale, v.x_scale, v.shift};
  }
};

/// The pieces of a BatchNorm, each a step of its own. `in_place`: g is written over dy where dx has
/// a tensor of its own (5), and else dx over g (6).
inline StepCase norm_in_pieces_case(const compute::Shape& s, const BatchNormForm& form,
                                    bool in_place) {
  const std::size_t c = s.channels;
  NormInPieces norm{0, s.pixels(), c, {1, c}, {2, 2 * c}, NormVectors(0)};
  if (form.gamma) norm.gamma = {1 + c, c};
  const auto where = [](bool there, compute::TensorId id) {
    return there ? id : compute::no_tensor;
  };
  const bool writes_g = form.activated() || form.two_gradients || form.residual;
  const compute::TensorId g = in_place && form.gamma ? 2 : 6;
  const compute::BatchNormSums sums =
      norm.sums(form.then, where(form.activated() && form.residual, 4),
                where(form.two_gradients, 3), where(writes_g, g));
  const bool over_g = in_place && !form.gamma && writes_g;
  return {
      std::vector<compute::Shape>(writes_g && g == 6 ? 7 : 6, s),
      4,
      {compute::BatchNormStatistics{0, norm.v.sums}, norm.finalize(),
       compute::BatchNormApply{0, 4, norm.applied(form.then, where(form.residual, 1))},
       compute::BatchNormBackwardReduce{2, sums}, norm.gradient(writes_g ? g : 2, over_g ? 6 : 5)},
      1 + 2 * c,
      2 + 2 * c,
      NormVectors::extents(s.channels)};
}

/// A convolution that takes in the activation of the BatchNorm before it and that one's backward
/// sums, and sums up its results for the next BatchNorm. `skips`: two gradients are added;
/// `from_y`: the mask follows from the activated tensor.
struct NormsInConvolution {
  /// The first two are for x and dx to be slices of.
  enum Id : compute::TensorId { of_x, of_dx, x, dz, skip, y, z, g, dx, normal_z };
  compute::Window window;
  compute::Shape shape;
  int out;
  compute::Activation then;
  bool skips, from_y;

  StepCase made() const {
    const compute::Shape results = after(window, shape, out);
    compute::Shape wide = shape;
    wide.channels += 32;
    const std::size_t c = shape.channels, k = out;
    const compute::ParameterRange w{2 * c + 2 * k, k * window.height * window.width * c};
    NormInPieces before{x, shape.pixels(), c, {0, c}, {0, 2 * c}, NormVectors(0)},
        behind{z, results.pixels(), k, {2 * c, k}, {2 * c, 2 * k}, NormVectors(8)};
    if (!from_y) before.gamma = {c, c};
    behind.gamma = {2 * c + k, k};
    compute::ConvolutionForward forward{window, x, z, w};
    forward.prologue = before.applied(then);
    forward.sums = behind.v.sums;
    const auto where = [](bool there, compute::TensorId id) {
      return there ? id : compute::no_tensor;
    };
    const compute::BatchNormSums sums = before.sums(then, where(from_y, y), where(skips, skip), g);
    std::vector<int> vectors = NormVectors::extents(shape.channels);
    for (const int extent : NormVectors::extents(out)) vectors.push_back(extent);
    return {
        {wide, wide, shape, results, shape, shape, results, shape, shape, results},
        y,
        {compute::BatchNormStatistics{x, before.v.sums}, before.finalize(),
         compute::BatchNormApply{x, y, before.applied(then, where(from_y, skip))}, forward,
         behind.finalize(),
         compute::BatchNormApply{z, normal_z, behind.applied(compute::Activation::none)},
         compute::ConvolutionWeightGradient{window, x, dz, w, std::nullopt, before.applied(then)},
         compute::ConvolutionInputGradient{window, dz, compute::no_tensor, w, sums},
         before.gradient(g, dx)},
        w.end(),
        2 * c + 2 * k,
        std::move(vectors)};
  }
};

inline StepCase batch_norm_evaluation_case(const compute::Shape& s) {
  const std::size_t c = s.channels;
  compute::BatchNormForward forward{
      0, 2, compute::no_tensor, compute::ParameterRange{c, c}, {0, c}, {1, 2 * c}};
  forward.training = false;
  const compute::BatchNormInputGradient backward{
      1, 3, forward.gamma, forward.beta, forward.statistics, forward.epsilon};
  return {{s, s, s, s}, 2, {forward, backward}, 2 * c, 1 + 2 * c};
}

/// Tensors of `a` and of `b` channels, side by side and taken apart again.
inline StepCase concatenation_case(int batch, int a, int b) {
  const compute::Shape first{batch, 3, 5, a}, second{batch, 3, 5, b}, all{batch, 3, 5, a + b + a};
  return {{first, second, all, first, second},
          2,
          {compute::Concat{{0, 1, 0}, 2}, compute::ChannelSlice{2, 3, a + b},
           compute::ChannelSlice{2, 4, a}}};
}

inline StepCase shortcut_case(const compute::Shape& x, int more_channels, int stride) {
  const compute::Shape y{x.batch, (x.height + stride - 1) / stride, (x.width + stride - 1) / stride,
                         x.channels + more_channels};
  return {{x, y, y, x},
          2,
          {compute::ShortcutForward{0, 2, stride}, compute::ShortcutBackward{1, 3, stride}}};
}

inline StepCase pool_case(const compute::Window& window, const compute::Shape& x) {
  const compute::Shape y = after(window, x, x.channels);
  return {{x, y, y, x, y, x},
          2,
          {compute::MaxPoolForward{window, 0, 2}, compute::MaxPoolBackward{window, 0, 2, 1, 3},
           compute::AveragePoolForward{window, 0, 4}, compute::AveragePoolBackward{window, 1, 5}}};
}

/// A filter of ever other numbers, the same for all channels.
inline StepCase filter_case(const compute::Window& window, const compute::Shape& x) {
  const compute::Shape y = after(window, x, x.channels);
  std::vector<float> taps;
  for (int i = 0; i < window.height * window.width; ++i) taps.push_back(0.3f - 0.1f * float(i));
  return {
      {x, y, y, x},
      2,
      {compute::FilterForward{window, taps, 0, 2}, compute::FilterBackward{window, taps, 1, 3}}};
}

inline StepCase reflect_pad_case(const compute::Shape& x, int border) {
  compute::Shape y = x;
  y.height += 2 * border;
  y.width += 2 * border;
  return {{x, y, y, x},
          2,
          {compute::ReflectPadForward{0, 2, border}, compute::ReflectPadBackward{1, 3, border}}};
}

/// Of ever other classes, 0 among them.
inline std::vector<float> some_class_weights(int classes) {
  std::vector<float> weights;
  for (int c = 0; c < classes; ++c) weights.push_back(0.75f * float((c + 1) % 4));
  return weights;
}

inline StepCase cross_entropy_case(int classes, bool weighted) {
  const compute::Shape s{5, 1, 1, classes};
  compute::SoftmaxCrossEntropy step{0, 1, 0.1f, 0.4f};
  if (weighted) step.class_weights = some_class_weights(classes);
  return {{s, s}, 1, {step}};
}

/// A plain sample, places that pad, and mixed samples: of two classes, and of one class twice.
inline std::vector<Target> all_kinds_of_targets(int classes) {
  const std::int32_t last = classes - 1, middle = classes / 2;
  return {{0}, {-1}, {last, 0, 0.7f}, {middle, middle, 0.3f}, {-1}};
}

/// Makes ties of a comparison's random values, and sets its targets.
template <class Comparison>
void with_ties_and_all_targets(Comparison& comparison, int classes) {
  comparison.map_inputs([](float v) { return std::round(10 * v) / 2; });
  set_targets(comparison.batch(), all_kinds_of_targets(classes));
}

inline StepCase input_case(const compute::Shape& s, compute::Normalisation kind, bool jitter,
                           bool clip, bool erase) {
  return {{s},
          0,
          {compute::Input{0, kind, std::vector<float>(s.channels, 0.4f),
                          std::vector<float>(s.channels, 0.3f), jitter, clip, erase}}};
}

}  // namespace ringtrain
