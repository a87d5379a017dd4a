// Every kind of step on the GPU against the reference.
#include "support/gpu_comparison.hpp"
#include "support/random_batch.hpp"

using namespace ringtrain;
using namespace ringtrain::compute;

namespace {

Element elements() { return GENERATE(Element::fp32, Element::fp16, Element::bf16); }

}  // namespace

TEST_CASE("cuda step: convolution, forward and both gradients") {
  const Window window =
      GENERATE(Window{}, Window{3, 3, 1, 1, 1, 1, 1, 1}, Window{3, 3, 2, 2, 0, 0, 1, 1},
               Window{1, 1, 2, 2}, Window{5, 5, 1, 1, 2, 2, 2, 2}, Window{1, 7, 1, 1, 0, 3, 0, 3});
  const auto element = elements();
  const int in = GENERATE(8, 24), out = GENERATE(16, 32), batch = 2;
  const bool bias = GENERATE(true, false);
  const std::size_t offset = GENERATE(0, 3);  // not aligned
  CAPTURE(name_of(element), window.height, window.width, window.stride_y, in, out, bias, offset);

  GpuComparison(element,
                convolution_case(window, {batch, 9, 11, in}, out, offset, bias, relu_if(bias)))
      .check();
}

TEST_CASE("cuda step: convolutions in groups, and of few channels, are ours") {
  const ConvolutionShape window = GENERATE(
      ConvolutionShape(Window{3, 3, 1, 1, 1, 1, 1, 1}, 24), ConvolutionShape(Window{}, 3),
      ConvolutionShape(Window{5, 5, 2, 2, 1, 1, 2, 2}, 24), ConvolutionShape(Window{}, 24),
      ConvolutionShape(Window{3, 3, 2, 2, 0, 0, 1, 1}, 24),
      ConvolutionShape(Window{5, 5, 1, 1, 2, 2, 2, 2}, 24),
      ConvolutionShape(Window{7, 7, 1, 1, 3, 3, 3, 3}, 24),
      ConvolutionShape(Window{3, 2, 2, 1, 0, 1, 1, 0}, 6), ConvolutionShape(Window{1, 1, 2, 2}, 2));
  const auto element = elements();
  const int multiplier = GENERATE(1, 2);
  const bool bias = GENERATE(true, false);
  CAPTURE(name_of(element), window.height, window.groups, multiplier, bias);
  const Activation then = bias ? Activation::hard_swish : Activation::none;

  GpuComparison(element, convolution_case(window, {2, 9, 11, 24}, 24 * multiplier, 3, bias, then))
      .check(2e-5);
  if (window.groups == 24)
    GpuComparison(element, convolution_case(Window{}, {2, 1, 1, 6}, 24, 3, bias, then)).check(2e-5);
}

TEST_CASE("cuda step: factors for channels, LayerNorm and multiplication") {
  const auto element = elements();
  const int channels = sizes_of_channels();
  CAPTURE(name_of(element), channels);
  const Shape s{3, 5, 7, channels};

  GpuComparison(element, scale_case(s)).check(2e-5);
  if (channels > 1) GpuComparison(element, layer_norm_case(s, 0.01f)).check(2e-5);
  GpuComparison(element, {s, s, s}, 1, {Multiply{0, 1, 0.125f}, Dropout{{0.6f, 2, true}, 0, 2}})
      .check();
}

TEST_CASE("cuda step: filters and mirrored borders") {
  const auto element = elements();
  const int channels = sizes_of_channels();
  CAPTURE(name_of(element), channels);

  GpuComparison(element, filter_case({5, 3, 1, 2, 2, 1, 2, 0}, {2, 9, 11, channels})).check();
  GpuComparison(element, reflect_pad_case({2, 4, 5, channels}, 3)).check();
}

// cuDNN applies ReLU alone; a kernel of ours applies the others.
TEST_CASE("cuda step: every activation behind convolutions and matrix products") {
  const auto element = elements();
  const Activation then = any_activation();
  const bool bias = GENERATE(true, false);
  CAPTURE(name_of(element), name_of(then), bias);
  const Window window{3, 3, 1, 1, 1, 1, 1, 1};

  GpuComparison(element, convolution_case(window, {2, 9, 11, 24}, 16, 0, bias, then)).check(2e-5);
  GpuComparison(element, matrix_product_case({5, 3, 3, 24}, 16, bias, then)).check(2e-5);
}

TEST_CASE("cuda step: matrix product, also of images") {
  const auto element = elements();
  const int batch = GENERATE(1, 5), side = GENERATE(1, 3), out = GENERATE(8, 40);
  CAPTURE(name_of(element), batch, side, out);

  GpuComparison(element,
                matrix_product_case({batch, side, side, 24}, out, out != 8, relu_if(out == 40)))
      .check();
}

TEST_CASE("cuda step: a few classes, as a last layer has") {
  const auto element = elements();
  const int classes = GENERATE(10, 5, 1001);
  CAPTURE(name_of(element), classes);

  GpuComparison(element, matrix_product_case({4, 1, 1, 64}, classes, true, Activation::none))
      .check();
}

TEST_CASE("cuda step: ReLU and sums") {
  const auto element = elements();

  GpuComparison(element, pointwise_case({2, 5, 7, sizes_of_channels()}, any_activation())).check();
}

TEST_CASE("cuda step: BatchNorm in all its forms") {
  const auto element = elements();
  const int channels = sizes_of_channels();
  const bool gamma = GENERATE(true, false), residual = GENERATE(true, false),
             two = GENERATE(true, false);
  const BatchNormForm form{gamma, any_activation(), residual, two};
  CAPTURE(name_of(element), channels, gamma, name_of(form.then), residual, two);
  if (!form.has_gradient()) return;

  GpuComparison(element, batch_norm_case({2, 19, 17, channels}, form)).check(2e-5);
}

TEST_CASE("cuda step: BatchNorm in evaluation uses the running statistics") {
  const auto element = elements();

  GpuComparison(element, batch_norm_evaluation_case({2, 5, 3, sizes_of_channels()})).check();
}

TEST_CASE("cuda step: concatenation, slices and the parameterless shortcut") {
  const auto element = elements();
  const int a = sizes_of_channels(), b = GENERATE(1, 16), stride = GENERATE(1, 2);
  CAPTURE(name_of(element), a, b, stride);

  GpuComparison(element, concatenation_case(2, a, b)).check();
  GpuComparison(element, shortcut_case({2, 3, 5, a}, b, stride)).check();
}

TEST_CASE("cuda step: pools, with ties and padding on one side") {
  const auto element = elements();
  const Window window = pool_windows();
  const int channels = sizes_of_channels();
  CAPTURE(name_of(element), window.height, window.stride_y, window.top, channels);
  GpuComparison comparison(element, pool_case(window, {2, 6, 8, channels}));
  comparison.map_inputs([](float v) { return std::round(v); });

  comparison.check();
}

TEST_CASE("cuda step: LRN and dropout") {
  const auto element = elements();
  const int channels = sizes_of_channels(), radius = GENERATE(1, 4);
  const bool mask = GENERATE(false, true);
  CAPTURE(name_of(element), channels, radius, mask);
  const Shape s{2, 5, 7, channels};

  GpuComparison(element, {s, s, s, s, s}, 2,
                {LrnForward{{radius, 1.5f, 0.3f, 0.75f}, 0, 2},
                 LrnBackward{{radius, 1.5f, 0.3f, 0.75f}, 0, 1, 3, mask}, Dropout{{0.6f, 2}, 0, 4}})
      .check();
}

TEST_CASE("cuda step: pools and copies work on slices of wider tensors") {
  const auto element = elements();
  const Window window = GENERATE(Window{3, 3, 2, 2, 0, 0, 1, 1}, Window{6, 8, 1, 1});
  const int channels = sizes_of_channels(), first = GENERATE(0, 3, 8);
  CAPTURE(name_of(element), window.height, channels, first);
  enum : TensorId { all, dall, x, copied, dy, y, mean, dx, dmean, part };
  const Shape xs{2, 6, 8, channels}, ys = after(window, xs, channels);
  const auto wide = [&](const Shape& s) {
    return Shape{s.batch, s.height, s.width, first + 2 * s.channels};
  };
  GpuComparison comparison(
      element, {wide(ys), wide(ys), xs, wide(xs), ys, ys, ys, xs, xs, xs}, dy,
      {MaxPoolForward{window, x, y}, AveragePoolForward{window, x, mean}, Concat{{x}, part},
       MaxPoolBackward{window, x, y, dy, dx}, AveragePoolBackward{window, dy, dmean}});
  comparison.map_inputs([](float v) { return std::round(v); });
  comparison.lay(y, {all, first});
  comparison.lay(mean, {all, first + channels});
  comparison.lay(dy, {dall, first});
  comparison.lay(part, {copied, first});

  comparison.check();
}

TEST_CASE("cuda step: the pieces of BatchNorm work on slices of wider tensors") {
  const auto element = elements();
  const int channels = sizes_of_channels(), first = GENERATE(0, 3, 8);
  const bool relu = GENERATE(true, false);
  CAPTURE(name_of(element), channels, first, relu);
  enum : TensorId { in, out, x, y, dy, dx, g };
  enum : VectorId { sums, scale, bias, mean, inverse, g_scale, x_scale, shift };
  const Shape narrow{2, 19, 17, channels}, wide{2, 19, 17, first + 2 * channels};
  const std::size_t c = channels;
  std::vector<Shape> tensors{wide, wide, narrow, narrow, narrow, narrow};
  if (relu) tensors.push_back(narrow);
  const BatchNormSums how{.x = x,
                          .g = relu ? g : no_tensor,
                          .then = relu_if(relu),
                          .beta = {0, c},
                          .count = narrow.pixels(),
                          .scale = scale,
                          .bias = bias,
                          .mean = mean,
                          .inverse_deviation = inverse,
                          .g_scale = g_scale,
                          .x_scale = x_scale,
                          .shift = shift};
  GpuComparison comparison(
      element, tensors, x,
      {BatchNormStatistics{x, sums},
       BatchNormFinalize{sums,
                         narrow.pixels(),
                         std::nullopt,
                         {0, c},
                         {0, 2 * c},
                         1e-3f,
                         true,
                         scale,
                         bias,
                         mean,
                         inverse},
       BatchNormApply{x, y, {.scale = scale, .bias = bias, .then = relu_if(relu)}},
       BatchNormBackwardReduce{dy, how},
       BatchNormBackwardApply{relu ? g : dy, x, dx, g_scale, x_scale, shift}},
      c, 2 * c);
  comparison.set_vectors(
      {2 * channels, channels, channels, channels, channels, channels, channels, channels});
  comparison.lay(x, {in, first});
  comparison.lay(dy, {in, first + channels});
  comparison.lay(y, {out, first});
  comparison.lay(dx, {out, first + channels});

  comparison.check(2e-5);
}

TEST_CASE("cuda step: softmax cross-entropy, padded samples and ties included") {
  const auto element = elements();
  const int classes = GENERATE(1, 5, 10, 1001);
  const bool weighted = GENERATE(false, true);
  CAPTURE(name_of(element), classes, weighted);
  GpuComparison comparison(element, cross_entropy_case(classes, weighted));
  with_ties_and_all_targets(comparison, classes);

  comparison.check();
}

TEST_CASE("cuda step: input is jittered, normalised and erased") {
  const auto element = elements();
  const int channels = GENERATE(1, 3, 5);
  const auto kind = GENERATE(Normalisation::standardise_image, Normalisation::mean_deviation);
  const bool jitter = GENERATE(false, true), erase = GENERATE(false, true);
  const bool clip = GENERATE(false, true) && kind == Normalisation::mean_deviation;
  CAPTURE(name_of(element), channels, jitter, clip, erase);
  const Shape s{3, 7, 5, channels};
  GpuComparison comparison(element, input_case(s, kind, jitter, clip, erase));
  comparison.batch() = random_batch(s);
  set_jitter(comparison.batch(), {{}, {-20, 1.8f, 0.5f, -0.2f}, {63, 0.2f, 1.5f, 0.3f}});
  set_erased(comparison.batch(), {{1, 2, 4, 3, 0.7f}, {}, {6, 0, 1, 4}});

  comparison.check(2e-5);
}
