// Every kind of step on the GPU against the reference.
#include "support/gpu_comparison.hpp"
#include "support/random_batch.hpp"

using namespace ringtrain;
using namespace ringtrain::compute;

namespace {

Element elements() { return GENERATE(Element::fp32, Element::fp16, Element::bf16); }
int sizes_of_channels() { return GENERATE(1, 3, 8, 17, 64); }

int extent(int in, int before, int after, int kernel, int stride) {
  return (in + before + after - kernel) / stride + 1;
}
Shape after(const Window& w, const Shape& x, int channels) {
  return {x.batch, extent(x.height, w.top, w.bottom, w.height, w.stride_y),
          extent(x.width, w.left, w.right, w.width, w.stride_x), channels};
}

const std::optional<ParameterRange> no_parameters;

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
  const Shape x{batch, 9, 11, in}, y = after(window, x, out);
  const std::size_t weights = std::size_t(out) * window.height * window.width * in;
  const ParameterRange w{offset, weights};
  const auto b =
      bias ? std::optional(ParameterRange{offset + weights, std::size_t(out)}) : no_parameters;

  GpuComparison(
      element, {x, y, y, x}, 2,
      {ConvolutionForward{window, 0, 2, w, b, bias}, ConvolutionInputGradient{window, 1, 3, w},
       ConvolutionWeightGradient{window, 0, 1, w, b}},
      offset + weights + out)
      .check();
}

TEST_CASE("cuda step: matrix product, also of images") {
  const auto element = elements();
  const int batch = GENERATE(1, 5), side = GENERATE(1, 3), out = GENERATE(8, 40);
  CAPTURE(name_of(element), batch, side, out);
  const Shape x{batch, side, side, 24}, y{batch, 1, 1, out};
  const std::size_t weights = out * x.features();
  const ParameterRange w{0, weights};
  const auto b =
      out == 8 ? no_parameters : std::optional(ParameterRange{weights, std::size_t(out)});

  GpuComparison(element, {x, y, y, x}, 2,
                {MatrixProductForward{0, 2, w, b, out == 40}, MatrixProductInputGradient{1, 3, w},
                 MatrixProductWeightGradient{0, 1, w, b}},
                weights + out)
      .check();
}

TEST_CASE("cuda step: a few classes, as a last layer has") {
  const auto element = elements();
  const int classes = GENERATE(10, 5, 1001);
  CAPTURE(name_of(element), classes);
  const Shape x{4, 1, 1, 64}, y{4, 1, 1, classes};
  const std::size_t weights = classes * x.features();
  const ParameterRange w{0, weights}, b{weights, std::size_t(classes)};

  GpuComparison(element, {x, y, y, x}, 2,
                {MatrixProductForward{0, 2, w, b}, MatrixProductInputGradient{1, 3, w},
                 MatrixProductWeightGradient{0, 1, w, b}},
                weights + classes)
      .check();
}

TEST_CASE("cuda step: ReLU and sums") {
  const auto element = elements();
  const Shape s{2, 5, 7, sizes_of_channels()};

  GpuComparison(element, {s, s, s, s, s, s}, 2,
                {ReluForward{0, 2}, ReluBackward{2, 1, 3}, Add{0, 1, 4}, Add{0, 1, 5, true}})
      .check();
}

TEST_CASE("cuda step: BatchNorm in all its forms") {
  const auto element = elements();
  const int channels = sizes_of_channels();
  const bool gamma = GENERATE(true, false), relu = GENERATE(true, false);
  const bool residual = GENERATE(true, false), two = GENERATE(true, false);
  CAPTURE(name_of(element), channels, gamma, relu, residual, two);
  const Shape s{2, 19, 17, channels};
  const std::size_t c = channels;
  const auto scale = gamma ? std::optional(ParameterRange{1 + c, c}) : no_parameters;
  BatchNormForward forward{0, 4, residual ? 1 : no_tensor, scale, {1, c}, {2, 2 * c}};
  forward.relu = relu;
  forward.unbiased = gamma;
  BatchNormBackward backward{0, relu && residual ? 4 : no_tensor, 2,     two ? 3 : no_tensor,
                             5, residual ? 6 : no_tensor,         scale, {1, c}};
  backward.relu = relu;

  GpuComparison(element, std::vector<Shape>(residual ? 7 : 6, s), 4, {forward, backward}, 1 + 2 * c,
                2 + 2 * c)
      .check(2e-5);
}

TEST_CASE("cuda step: BatchNorm in evaluation uses the running statistics") {
  const auto element = elements();
  const int channels = sizes_of_channels();
  const std::size_t c = channels;
  const Shape s{2, 5, 3, channels};
  BatchNormForward forward{0, 1, no_tensor, ParameterRange{c, c}, {0, c}, {1, 2 * c}};
  forward.training = false;

  GpuComparison(element, {s, s}, 1, {forward}, 2 * c, 1 + 2 * c).check();
}

TEST_CASE("cuda step: concatenation, slices and the parameterless shortcut") {
  const auto element = elements();
  const int a = sizes_of_channels(), b = GENERATE(1, 16), stride = GENERATE(1, 2);
  CAPTURE(name_of(element), a, b, stride);
  const Shape first{2, 3, 5, a}, second{2, 3, 5, b}, all{2, 3, 5, a + b + a};
  const Shape small{2, (3 + stride - 1) / stride, (5 + stride - 1) / stride, a + b};

  GpuComparison(element, {first, second, all, first, second}, 2,
                {Concat{{0, 1, 0}, 2}, ChannelSlice{2, 3, a + b}, ChannelSlice{2, 4, a}})
      .check();
  GpuComparison(element, {first, small, small, first}, 2,
                {ShortcutForward{0, 2, stride}, ShortcutBackward{1, 3, stride}})
      .check();
}

TEST_CASE("cuda step: pools, with ties and padding on one side") {
  const auto element = elements();
  const Window window =
      GENERATE(Window{3, 3, 2, 2, 0, 0, 1, 1}, Window{2, 2, 2, 2}, Window{3, 3, 1, 1, 1, 1, 1, 1},
               Window{6, 8, 1, 1}, Window{3, 3, 2, 2, 1, 1, 1, 1}, Window{5, 5, 3, 3});
  const int channels = sizes_of_channels();
  CAPTURE(name_of(element), window.height, window.stride_y, window.top, channels);
  const Shape x{2, 6, 8, channels}, y = after(window, x, channels);
  GpuComparison comparison(element, {x, y, y, x, y, x}, 2,
                           {MaxPoolForward{window, 0, 2}, MaxPoolBackward{window, 0, 2, 1, 3},
                            AveragePoolForward{window, 0, 4}, AveragePoolBackward{window, 1, 5}});
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
                {LrnForward{0, 2, radius, 1.5f, 0.3f, 0.75f},
                 LrnBackward{0, 1, 3, radius, 1.5f, 0.3f, 0.75f, mask}, Dropout{0, 4, 0.6f, 2}})
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
                          .relu = relu,
                          .beta = {0, c},
                          .count = narrow.pixels(),
                          .scale = scale,
                          .bias = bias,
                          .mean = mean,
                          .inverse_deviation = inverse,
                          .g_scale = g_scale,
                          .x_scale = x_scale,
                          .shift = shift};
  GpuComparison comparison(element, tensors, x,
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
                            BatchNormApply{x, y, {.scale = scale, .bias = bias, .relu = relu}},
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
  CAPTURE(name_of(element), classes);
  const Shape s{5, 1, 1, classes};
  GpuComparison comparison(element, {s, s}, 1, {SoftmaxCrossEntropy{0, 1, 0.1f, 0.4f}});
  comparison.map_inputs([](float v) { return std::round(10 * v) / 2; });
  comparison.batch().labels = {0, -1, classes - 1, classes / 2, -1};

  comparison.check();
}

TEST_CASE("cuda step: input is distorted and normalised") {
  const auto element = elements();
  const int channels = GENERATE(1, 3, 5);
  const auto kind = GENERATE(Normalisation::standardise_image, Normalisation::mean_deviation);
  const bool distort = GENERATE(false, true);
  const bool clip = GENERATE(false, true) && kind == Normalisation::mean_deviation;
  CAPTURE(name_of(element), channels, distort, clip);
  const Shape s{3, 7, 5, channels};
  GpuComparison comparison(element, {s}, 0,
                           {Input{0, kind, std::vector<float>(channels, 0.4f),
                                  std::vector<float>(channels, 0.3f), distort, clip}});
  comparison.batch() = random_batch(s);
  comparison.batch().distortions = {{}, {-20, 1.8f, 0.5f, -0.2f}, {63, 0.2f, 1.5f, 0.3f}};

  comparison.check(2e-5);
}
