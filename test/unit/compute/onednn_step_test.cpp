// Every kind of step: oneDNN and our own kernels against the reference, at odd sizes.
#include <omp.h>

#include <cmath>

#include "compute/onednn/kernels/activation.hpp"
#include "support/backend_comparison.hpp"
#include "support/sanitized.hpp"

using namespace ringtrain;
using namespace ringtrain::compute;

namespace {

int sizes_of_batch() { return sanitized ? GENERATE(1, 3) : GENERATE(1, 2, 3); }

const std::optional<ParameterRange> none;

struct ThreadsOfOpenMp {
  explicit ThreadsOfOpenMp(int now) { omp_set_num_threads(now); }
  ~ThreadsOfOpenMp() { omp_set_num_threads(before); }
  int before = omp_get_max_threads();
};

// Whether our Winograd kernels take convolutions of many channels and tiles. In bf16 they leave
// windows of one row or column to oneDNN.
bool winograd_takes(const Window& window) {
  const bool line = window.height == 1 || window.width == 1;
  return onednn::effective_isa() != onednn::Isa::baseline &&
         !(tested_element() == Element::bf16 && (line || onednn::has_amx_bf16()));
}

// All three passes of such a convolution.
void check_winograd(const Window& window, const Shape& x, int out, bool bias, double tolerance) {
  BackendComparison comparison(convolution_case(window, x, out, 0, true, relu_if(bias)));
  comparison.check(tolerance);
  CHECK(comparison.own_convolutions == (winograd_takes(window) ? 3 : 0));
}

}  // namespace

TEST_CASE("onednn: convolution agrees with the reference, forward and both gradients", "[onednn]") {
  const Window window =
      GENERATE(Window{}, Window{3, 3, 1, 1, 1, 1, 1, 1}, Window{3, 3, 2, 2, 0, 0, 1, 1},
               Window{1, 1, 2, 2}, Window{5, 5, 1, 1, 2, 2, 2, 2}, Window{1, 7, 1, 1, 0, 3, 0, 3},
               Window{3, 2, 2, 1, 0, 1, 1, 0}, Window{7, 7, 2, 2, 3, 3, 3, 3});
  const int in = sizes_of_channels(), out = GENERATE(5, 16, 33), batch = GENERATE(1, 3);
  CAPTURE(window.height, window.width, window.stride_y, in, out, batch);
  const std::size_t not_aligned = 3;

  BackendComparison(
      convolution_case(window, {batch, 9, 11, in}, out, not_aligned, out != 16, relu_if(out == 33)))
      .check();
}

// Tiles cut by all four edges, all kinds of padding, one and several blocks of columns, channels
// that fill no block.
TEST_CASE("onednn: 3x3 and 5x5 convolutions of many channels agree with the reference",
          "[onednn][many steps]") {
  const auto [in, out] = GENERATE(std::pair{32, 20}, std::pair{80, 48}, std::pair{64, 96});
  const Window window = GENERATE(Window{3, 3, 1, 1, 1, 1, 1, 1}, Window{3, 3},
                                 Window{5, 5, 1, 1, 2, 2, 2, 2}, Window{5, 5, 1, 1, 0, 1, 3, 4});
  CAPTURE(in, out, window.height, window.top);
  if (sanitized && in > 32) return;  // minutes
  // bf16 wants more tiles.
  const int batch = tested_element() == Element::bf16 ? 7 : 1;

  check_winograd(window, {batch, 29, 26, in}, out, in != 64, 1e-5);
}

TEST_CASE("onednn: convolutions along rows or columns agree with the reference",
          "[onednn][many steps]") {
  const auto [in, out] = GENERATE(std::pair{32, 20}, std::pair{80, 48}, std::pair{64, 96});
  const Window window =
      GENERATE(Window{1, 7, 1, 1, 0, 3, 0, 3}, Window{7, 1, 1, 1, 3, 0, 3, 0}, Window{1, 3, 1, 1},
               Window{3, 1, 1, 1, 1, 0, 1, 0}, Window{7, 1, 1, 1, 1, 0, 6, 0});
  CAPTURE(in, out, window.height, window.top);
  if (sanitized && in > 32) return;  // minutes
  check_winograd(window, {1, 29, 26, in}, out, in != 64, 1e-5);
}

// Images of several parts, several images at once, all kinds of padding, filters with strides and
// without, channels that fill no block. More threads than images share parts.
TEST_CASE("onednn: weight gradients by AMX agree with the reference", "[onednn][many steps]") {
  if (tested_element() != Element::bf16 || !onednn::has_amx_bf16()) return;
  struct Case {
    Window window;
    Shape x;
    int out;
    bool bias;
    int gradients;
  };
  const Case c = GENERATE(Case{{3, 3, 1, 1, 1, 1, 1, 1}, {2, 71, 62, 100}, 96, true, 1},
                          Case{{5, 5, 1, 1, 0, 1, 3, 4}, {3, 40, 37, 20}, 40, false, 1},
                          Case{{3, 3, 1, 1, 1, 1, 1, 1}, {40, 7, 7, 48}, 16, true, 1},
                          Case{{1, 7, 1, 1, 0, 3, 0, 3}, {2, 17, 17, 160}, 192, false, 1},
                          Case{{3, 3, 2, 2, 0, 0, 1, 1}, {2, 56, 56, 64}, 80, true, 3},
                          Case{{3, 3, 1, 1, 1, 1, 1, 1}, {50, 28, 28, 48}, 16, true, 1},
                          Case{{5, 5, 2, 2, 2, 2, 2, 2}, {1, 33, 35, 32}, 32, true, 4});
  const int threads = GENERATE(1, 3);
  const ThreadsOfOpenMp set(threads);
  CAPTURE(threads, c.window.height, c.window.stride_y, c.x.height);

  BackendComparison comparison(convolution_case(c.window, c.x, c.out, 0, true, relu_if(c.bias)));
  comparison.check();
  CHECK(comparison.gradient_error < 1e-4);  // bf16's products are exact in fp32
  CHECK(comparison.own_gradients == c.gradients);
}

TEST_CASE("onednn: threads that share a round of tiles agree with the reference",
          "[onednn][many steps]") {
  struct Case {
    int threads;
    Window window;
    Shape x;
    int out;
  };
  const Window five{5, 5, 1, 1, 1, 1, 1, 1}, three{3, 3, 1, 1, 1, 1, 1, 1};
  const Case c =
      GENERATE_COPY(Case{1, five, {2, 15, 17, 256}, 208},  // many channels
                    Case{3, three, {4, 33, 35, 128}, 96},  // several rounds of weight gradients
                    Case{5, three, {2, 15, 17, 64}, 80},   // few tiles a thread, forward, too
                    Case{3, {1, 7, 1, 1, 0, 3, 0, 3}, {2, 17, 17, 192}, 160});
  if (tested_element() == Element::bf16 || (thread_sanitized && c.threads > 3)) return;
  if (sanitized && c.threads == 1) return;  // the reference takes half a minute for it
  const ThreadsOfOpenMp threads(c.threads);
  CAPTURE(c.threads, c.window.height);

  check_winograd(c.window, c.x, c.out, true, 2e-5);
}

TEST_CASE("onednn: convolutions of tiny images agree with the reference", "[onednn]") {
  const int edge = GENERATE(1, 2, 5);
  BackendComparison comparison(convolution_case(
      Window{3, 3, 1, 1, 1, 1, 1, 1}, {40, edge, edge, 32}, 32, 0, true, Activation::relu));
  comparison.check();
  CHECK(comparison.own_convolutions == 0);  // most of a tile would lie in the padding
}

TEST_CASE("onednn: strided convolutions that leave weights or pixels out agree with the reference",
          "[onednn]") {
  const Window window = GENERATE(Window{3, 3, 2, 2, 1, 1, 1, 1}, Window{2, 2, 2, 2, 0, 0, 1, 1},
                                 Window{3, 3, 3, 3, 1, 1, 1, 1}, Window{1, 1, 3, 3});
  const auto [height, width] = GENERATE(std::pair{1, 1}, std::pair{1, 40}, std::pair{8, 7});
  CAPTURE(window.height, window.stride_y, height, width);
  BackendComparison(convolution_case(window, {2, height, width, 64}, 32, 0, true, Activation::relu))
      .check();
}

TEST_CASE("onednn: rows and columns padded across agree with the reference", "[onednn]") {
  const Window window = GENERATE(Window{7, 1, 1, 1, 3, 0, 3, 1}, Window{1, 3, 1, 1, 0, 1, 2, 1});
  BackendComparison comparison(
      convolution_case(window, {1, 29, 26, 32}, 32, 0, true, Activation::relu));
  comparison.check();
  CHECK(comparison.own_convolutions == 0);
}

TEST_CASE("onednn: convolutions of long rows agree with the reference", "[onednn]") {
  const Window window = GENERATE(Window{3, 3, 1, 1, 1, 1, 1, 1}, Window{}, Window{1, 3});
  const int width = GENERATE(224, 240, 501), channels = GENERATE(16, 20);
  CAPTURE(window.height, window.width, width, channels);
  const Shape x{1, 14, width, channels}, y = after(window, x, 16);
  const ParameterRange w{16, std::size_t(16) * window.height * window.width * channels};

  BackendComparison({x, y, y, x}, 2,
                    {ConvolutionForward{window, 0, 2, w, ParameterRange{0, 16}},
                     ConvolutionInputGradient{window, 1, 3, w},
                     ConvolutionWeightGradient{window, 0, 1, w, ParameterRange{0, 16}}},
                    16 + w.count)
      .check();
}

TEST_CASE("onednn: a convolution whose images are plain agrees with the reference", "[onednn]") {
  const int channels = GENERATE(1, 3, 4, 5), out = GENERATE(7, 16, 24, 64);
  const bool jitter = GENERATE(false, true);
  CAPTURE(channels, out, jitter);
  const Element element = tested_element();
  const double tolerance = tolerance_of(element, 1e-5);
  Schedule schedule;
  schedule.tensors = {
      {2, 9, 10, channels}, {2, 9, 10, out}, {2, 1, 1, out}, {2, 1, 1, out}, {2, 9, 10, out}};
  const std::size_t weights = std::size_t(out) * 25 * channels;
  const Window window{5, 5, 1, 1, 2, 2, 2, 2}, whole{9, 10, 1, 1};
  schedule.parameters = weights + out;
  schedule.batch = 2;
  const ParameterRange w{0, weights}, b{weights, std::size_t(out)};
  schedule.steps = {Input{0, Normalisation::mean_deviation, std::vector<float>(channels, 0.4f),
                          std::vector<float>(channels, 0.25f), jitter},
                    ConvolutionForward{window, 0, 1, w, b, Activation::relu},
                    AveragePoolForward{whole, 1, 2},
                    SoftmaxCrossEntropy{2, 3},
                    AveragePoolBackward{whole, 3, 4},
                    ConvolutionWeightGradient{window, 0, 4, w, b}};
  schedule.backward = 4;
  Batch batch = random_batch(schedule.tensors[0]);
  set_targets(batch, {{1}, {3}});
  set_jitter(batch, {{5, 0.8f, 1.2f, 0.1f}, {-9, 1.5f}});
  Philox random(3, Purpose::synthetic);
  for (std::uint8_t& value : batch.images) value = static_cast<std::uint8_t>(random.below(256));

  std::vector<float> gradients[2];
  double loss[2];
  for (const int which : {0, 1}) {
    const auto backend = which ? make_onednn_backend(nullptr, element) : make_reference_backend();
    Buffer values = backend->memory().allocate(schedule.parameters),
           result = backend->memory().allocate(schedule.parameters);
    Philox initial(4, Purpose::initialise);
    for (float& v : values.view().host()) v = Bf16(static_cast<float>(initial.normal()));
    const auto program = backend->compile(schedule, {values, result, {}, {}}, 1);
    loss[which] = program->run(batch, 0.5, nullptr).loss;
    gradients[which].assign(result.view().host().begin(), result.view().host().end());
  }

  CHECK(loss[1] == Approx(loss[0]).epsilon(tolerance));
  CHECK(relative_error(gradients[1], gradients[0]) < tolerance);
}

TEST_CASE("onednn: matrix product agrees with the reference", "[onednn]") {
  const int channels = sizes_of_channels(), batch = sizes_of_batch();
  const int side = GENERATE(1, 3), out = GENERATE(1, 10, 200);
  CAPTURE(channels, batch, side, out);

  BackendComparison(
      matrix_product_case({batch, side, side, channels}, out, out != 1, relu_if(out == 10)))
      .check();
}

TEST_CASE("onednn: a matrix product from and to images fills every pixel", "[onednn]") {
  const int channels = sizes_of_channels();
  const Shape x{2, 1, 1, 6}, y{2, 3, 2, channels};

  BackendComparison({x, y}, 1, {MatrixProductForward{0, 1, {0, 6 * y.features()}}},
                    6 * y.features())
      .check();
}

TEST_CASE("onednn: activations and sums agree with the reference, padding stays zero", "[onednn]") {
  const int channels = sizes_of_channels(), batch = sizes_of_batch();

  const Activation f = any_activation();
  CAPTURE(name_of(f));
  BackendComparison(pointwise_case({batch, 5, 7, channels}, f)).check();
}

TEST_CASE("onednn: the exact GELU keeps its digits far below 0, as the reference's does") {
  for (float x = -6; x <= -4; x += 0.01f) {
    const ExactGelu exact(x);
    const onednn::Vec<4> all = onednn::Vec<4>{} + x, one = onednn::Vec<4>{} + 1;

    check_digits(reference::value_of(Activation::gelu, x), exact.value, 1e-12);
    check_digits(reference::slope_of(Activation::gelu, x), exact.slope, 1e-12);
    check_digits(onednn::value_of<4>(Activation::gelu, all)[0], exact.value);
    check_digits(onednn::gradient_of<4>(Activation::gelu, all, one)[0], exact.slope);
  }
}

TEST_CASE("onednn: every activation behind convolutions and matrix products", "[onednn]") {
  const Activation then = any_activation();
  const auto [window, x] =
      GENERATE(std::pair(Window{}, Shape{1, 9, 11, 5}), std::pair(Window{}, Shape{1, 9, 11, 32}),
               std::pair(Window{1, 1, 2, 2}, Shape{2, 9, 11, 5}),
               std::pair(Window{3, 3, 1, 1, 1, 1, 1, 1}, Shape{1, 9, 11, 5}),
               std::pair(Window{3, 3, 1, 1, 1, 1, 1, 1}, Shape{7, 17, 21, 32}));  // by Winograd
  if (x.batch == 7 && onednn::effective_isa() == onednn::Isa::baseline) return;
  CAPTURE(name_of(then), x.channels, window.height, window.stride_y);

  BackendComparison(convolution_case(window, x, x.channels + 2, 0, true, then)).check(2e-5);
  BackendComparison(matrix_product_case({3, 3, 3, x.channels}, 10, true, then)).check();
}

TEST_CASE("onednn: BatchNorm agrees with the reference in all its fusions", "[onednn]") {
  const int channels = sizes_of_channels(), batch = sizes_of_batch();
  const bool gamma = GENERATE(true, false), residual = GENERATE(true, false),
             two = GENERATE(true, false);
  const BatchNormForm form{gamma, any_activation(), residual, two};
  CAPTURE(channels, batch, gamma, name_of(form.then), residual, two);
  if (!form.has_gradient()) return;

  BackendComparison(batch_norm_case({batch, 19, 17, channels}, form)).check();
}

// Of which channels-last kernels take a few or one at a time.
TEST_CASE("onednn: BatchNorm of wide pixels agrees with the reference", "[onednn]") {
  const int channels = GENERATE(128, 200, 320);
  const bool residual = GENERATE(true, false);
  CAPTURE(channels, residual);

  BackendComparison(
      batch_norm_case({2, 5, 7, channels}, {true, Activation::relu, residual, residual}))
      .check();
}

// They are stored past the caches.
TEST_CASE("onednn: BatchNorm of large tensors agrees with the reference", "[onednn]") {
  const bool pieces = GENERATE(true, false), two_threads = GENERATE(true, false);
  const Shape x{1, 151, 149, 72};
  const ThreadsOfOpenMp set(two_threads ? 2 : 1);
  CAPTURE(pieces, two_threads);
  if (sanitized && two_threads) return;

  BackendComparison(pieces ? norm_in_pieces_case(x, {true, Activation::relu, true, true}, false)
                           : batch_norm_case(x, {true, Activation::relu, true, true}))
      .check();
}

TEST_CASE("onednn: BatchNorm keeps its precision when the mean is far from zero", "[onednn]") {
  const Shape s{2, 33, 31, 5};
  BackendComparison comparison({s, s}, 1,
                               {BatchNormForward{0, 1, no_tensor, none, {0, 5}, {0, 10}}}, 5, 10);
  comparison.map_inputs([](float v) { return 1000 + v; });

  comparison.check();
}

TEST_CASE("onednn: BatchNorm in pieces agrees with the reference", "[onednn]") {
  const int channels = sizes_of_channels();
  const bool gamma = GENERATE(true, false), relu = GENERATE(true, false),
             residual = GENERATE(true, false), two = GENERATE(true, false),
             in_place = GENERATE(true, false);
  CAPTURE(channels, gamma, relu, residual, two, in_place);

  BackendComparison(
      norm_in_pieces_case({2, 19, 17, channels}, {gamma, relu_if(relu), residual, two}, in_place))
      .check();
}

// Large filters, their gradients' sums and large results are stored past the caches, and filters
// are read ahead.
TEST_CASE("onednn: Winograd convolutions of large tensors agree with the reference",
          "[onednn][many steps]") {
  const Window window{3, 3, 1, 1, 1, 1, 1, 1};
  const int batch = tested_element() == Element::bf16 ? 16 : 6;  // as many tiles as it takes
  if (sanitized) return;

  SECTION("filters") { check_winograd(window, {batch, 16, 16, 208}, 212, true, 2e-5); }
  SECTION("filters of a last odd block") {
    check_winograd(window, {batch, 16, 16, 212}, 200, false, 2e-5);
  }
  SECTION("filters of lines") { check_winograd({1, 3}, {2, 16, 18, 516}, 520, true, 2e-5); }
  SECTION("results of lines") { check_winograd({7, 1}, {1, 167, 163, 18}, 62, true, 2e-5); }
  SECTION("results") { check_winograd(window, {1, 161, 163, 18}, 62, true, 2e-5); }
}

TEST_CASE("onednn: BatchNorms in the convolutions around them agree with the reference",
          "[onednn]") {
  const Window window =
      GENERATE(Window{3, 3, 1, 1, 1, 1, 1, 1}, Window{5, 5, 1, 1, 2, 2, 2, 2}, Window{3, 3},
               Window{1, 7, 1, 1, 0, 3, 0, 3}, Window{7, 1, 1, 1, 3, 0, 3, 0});
  const bool relu = sanitized ? true : GENERATE(true, false), skips = GENERATE(true, false),
             from_y = GENERATE(true, false);
  const int threads = sanitized ? 3 : GENERATE(1, 3);
  const ThreadsOfOpenMp set(threads);
  CAPTURE(window.height, window.width, window.top, relu, skips, from_y, threads);
  if (!winograd_takes(window) || (sanitized && window.height == 5)) return;

  const int batch = tested_element() == Element::bf16 ? 13 : 7;  // as many tiles as it takes
  const Shape x{batch, 17 - 2 * window.top, 21 - 2 * window.left, 24};
  BackendComparison comparison(
      NormsInConvolution{window, x, 20, relu_if(relu), skips, from_y}.made());
  if (skips) {  // of tensors that others share
    comparison.lay(NormsInConvolution::x, {NormsInConvolution::of_x, 32});
    comparison.lay(NormsInConvolution::dx, {NormsInConvolution::of_dx, 32});
  }
  comparison.check(2e-5);
  CHECK(comparison.own_convolutions == 3);
}

TEST_CASE("onednn: convolutions sum up for BatchNorms the same bits on any number of threads",
          "[onednn][many steps]") {
  const Window window{3, 3, 1, 1, 1, 1, 1, 1};
  const Shape x = GENERATE(Shape{13, 15, 19, 24},   // threads have rounds of their own
                           Shape{2, 15, 15, 256});  // and five share them
  if (!winograd_takes(window)) skip_test("no Winograd kernels here");
  if (tested_element() == Element::bf16 && x.batch < 13) return;  // too few tiles
  BackendComparison comparison(
      NormsInConvolution{window, x, 40, Activation::relu, true, false}.made());
  const auto results_on = [&](int threads) {
    const ThreadsOfOpenMp set(threads);
    comparison.check(2e-5);
    std::vector<float>& gradients = comparison.results[comparison.results.size() - 2];
    gradients.resize(2 * x.channels + 80);  // without the weights'
    return comparison.results;
  };

  const auto alone = results_on(1);
  for (const int threads : sanitized ? std::vector{5} : std::vector{2, 3, 5})
    CHECK(results_on(threads) == alone);
}

TEST_CASE("onednn: BatchNorm over one pixel or two normalises them", "[onednn]") {
  const Shape s{GENERATE(1, 2), 1, 1, 17};
  BackendComparison({s, s, s, s}, 2,
                    {BatchNormForward{0, 2, no_tensor, none, {0, 17}, {0, 34}},
                     BatchNormBackward{0, no_tensor, 1, no_tensor, 3, no_tensor, none, {0, 17}}},
                    17, 34)
      .check(1e-3);  // the gradient is the small rest of a difference
}

TEST_CASE("onednn: BatchNorm in evaluation uses the running statistics", "[onednn]") {
  BackendComparison(batch_norm_evaluation_case({2, 5, 3, sizes_of_channels()})).check();
}

TEST_CASE("onednn: concatenation and slices agree with the reference", "[onednn]") {
  const int a = sizes_of_channels(), b = GENERATE(1, 16, 20), batch = sizes_of_batch();
  CAPTURE(a, b, batch);

  BackendComparison(concatenation_case(batch, a, b)).check();
}

TEST_CASE("onednn: BatchNorm and copies work on slices of wider tensors", "[onednn]") {
  const int channels = GENERATE(16, 48), first = GENERATE(0, 32), last = GENERATE(16, 5);
  const bool relu = GENERATE(true, false);
  CAPTURE(channels, first, last, relu);
  enum : TensorId { in, out, tail, x, dy, y, dx, end, part };
  const Shape s{2, 5, 7, channels}, few{2, 5, 7, last}, wide{2, 5, 7, first + 2 * channels + last};
  const std::size_t c = channels;
  BatchNormForward forward{x, y, no_tensor, ParameterRange{c, c}, {0, c}, {0, 2 * c}};
  BatchNormBackward backward{x,     no_tensor, dy, no_tensor, dx, no_tensor, ParameterRange{c, c},
                             {0, c}};
  forward.then = backward.then = relu_if(relu);
  BackendComparison comparison(
      {wide, wide, few, s, s, s, s, few, s}, x,
      {forward, backward, Concat{{tail}, end}, ChannelSlice{in, part, first}}, 2 * c, 2 * c);
  comparison.lay(x, {in, first});
  comparison.lay(dy, {in, first + channels});
  comparison.lay(y, {out, first});
  comparison.lay(dx, {out, first + channels});
  comparison.lay(end, {out, first + 2 * channels});

  comparison.check(2e-5);
}

TEST_CASE("onednn: the parameterless shortcut agrees with the reference", "[onednn]") {
  const int channels = sizes_of_channels(), more = GENERATE(0, 3, 16), stride = GENERATE(1, 2);
  CAPTURE(channels, more, stride);

  BackendComparison(shortcut_case({2, 7, 6, channels}, more, stride)).check();
}

TEST_CASE("onednn: pools agree with the reference, with ties and padding on one side", "[onednn]") {
  const Window window = pool_windows();
  const int channels = sizes_of_channels(), batch = sizes_of_batch();
  CAPTURE(window.height, window.stride_y, window.top, channels, batch);
  BackendComparison comparison(pool_case(window, {batch, 6, 8, channels}));
  comparison.map_inputs([](float v) { return std::round(v); });

  comparison.check();
}

TEST_CASE("onednn: filters and mirrored borders agree with the reference", "[onednn]") {
  const int channels = sizes_of_channels(), batch = sizes_of_batch();
  const Window window = GENERATE(Window{3, 3, 2, 2}, Window{5, 3, 1, 2, 2, 1, 2, 0});
  CAPTURE(channels, batch, window.height);

  BackendComparison(filter_case(window, {batch, 9, 11, channels})).check();
  BackendComparison(reflect_pad_case({batch, 4, 5, channels}, 3)).check();
}

TEST_CASE("onednn: what is no number wins a max pool, and -inf alone does not", "[onednn]") {
  if (onednn::effective_isa() != onednn::Isa::avx512)
    return;  // oneDNN's pools have rules of theirs
  const Window window = pool_windows();
  CAPTURE(window.height, window.stride_y, window.top);
  const Shape x{2, 11, 13, 20}, y = after(window, x, 20);
  BackendComparison comparison({x, y, y, x}, 2,
                               {MaxPoolForward{window, 0, 2}, MaxPoolBackward{window, 0, 2, 1, 3}});
  comparison.map_inputs([](float v) { return v > 0.9f ? NAN : v < 0.7f ? -INFINITY : v; });

  comparison.check();
}

TEST_CASE("onednn: LRN agrees with the reference, any radius and power", "[onednn]") {
  const int channels = sizes_of_channels(), radius = GENERATE(1, 4, 9, 20);
  const float beta = GENERATE(0.75f, 0.6f);
  const bool mask = GENERATE(false, true);
  CAPTURE(channels, radius, beta, mask);
  const Shape s{2, 5, 7, channels};

  BackendComparison({s, s, s, s}, 2,
                    {LrnForward{{radius, 1.5f, 0.3f, beta}, 0, 2},
                     LrnBackward{{radius, 1.5f, 0.3f, beta}, 0, 1, 3, mask}})
      .check();
}

TEST_CASE("onednn: LRN's power holds for sums from tiny to huge", "[onednn]") {
  const Shape s{1, 8, 8, 16};
  BackendComparison comparison(
      {s, s, s, s}, 2, {LrnForward{{0, 1e-6f, 1}, 0, 2}, LrnBackward{{0, 1e-6f, 1}, 0, 1, 3}});
  comparison.map_inputs([](float v) { return std::pow(10.f, 5 * v); });

  comparison.check();
}

TEST_CASE("onednn: a factor for each channel agrees with the reference", "[onednn]") {
  const int channels = sizes_of_channels(), batch = sizes_of_batch(), side = GENERATE(1, 2, 7);
  CAPTURE(channels, batch, side);

  BackendComparison(scale_case({batch, side, 5, channels})).check();
}

TEST_CASE("onednn: LayerNorm agrees with the reference, far from zero, too", "[onednn]") {
  const int channels = GENERATE(2, 3, 8, 17, 96), batch = sizes_of_batch(), side = GENERATE(1, 5);
  const bool far = GENERATE(false, true);
  CAPTURE(channels, batch, side, far);
  BackendComparison comparison(layer_norm_case({batch, side, 3, channels}, 0.01f));
  if (far) comparison.map_inputs([](float v) { return 30 + v; });

  comparison.check(far ? 3e-3 : 1e-5);  // 30 - 29.9 has few digits
}

TEST_CASE("onednn: multiplication by a number agrees with the reference", "[onednn]") {
  const Shape s{2, 3, 5, sizes_of_channels()};
  BackendComparison({s, s}, 1, {Multiply{0, 1, 0.125f}}).check();
}

TEST_CASE("onednn: stochastic depth keeps the same samples as the reference", "[onednn]") {
  const Shape s{3, 2, 3, sizes_of_channels()};
  const float keep = GENERATE(0.3f, 0.6f);

  BackendComparison({s, s}, 1, {Dropout{{keep, 2, true}, 0, 1}}).check();
}

TEST_CASE("onednn: dropout keeps the same elements as the reference", "[onednn]") {
  const int channels = sizes_of_channels();
  const Shape s{3, 2, 3, channels};

  BackendComparison comparison({s, s}, 1, {Dropout{{0.6f, 2}, 0, 1}});
  comparison.batch().samples[1].repeat = 5;
  comparison.check();
  BackendComparison({s, s}, 1, {Pointwise{Activation::relu, 0, 1}, Dropout{{0.6f, 2}, 1, 1}})
      .check();
}

TEST_CASE("onednn: softmax cross-entropy agrees, mixed and padded samples and ties included",
          "[onednn]") {
  const int classes = GENERATE(1, 5, 10, 17, 1001);
  const bool weighted = GENERATE(false, true);
  CAPTURE(classes, weighted);
  BackendComparison comparison(cross_entropy_case(classes, weighted));
  with_ties_and_all_targets(comparison, classes);

  comparison.check();
}

TEST_CASE("onednn: binary cross-entropy agrees", "[onednn]") {
  const int classes = GENERATE(1, 10, 1001);
  const bool sums = GENERATE(false, true);
  const float threshold = GENERATE(0.f, 0.2f);
  StepCase of = cross_entropy_case(classes, GENERATE(false, true));
  std::get<SoftmaxCrossEntropy>(of.steps[0]).binary = {sums, threshold};
  BackendComparison comparison(std::move(of));
  with_ties_and_all_targets(comparison, classes);
  comparison.map_inputs([](float v) { return 20 * v; });  // where an exp alone would overflow

  comparison.check();
}

TEST_CASE("onednn: among equal logits the lower class is the better one", "[onednn]") {
  const Shape s{5, 1, 1, 6};
  BackendComparison comparison({s, s}, 1, {SoftmaxCrossEntropy{0, 1}});
  comparison.map_inputs([](float) { return 0.f; });
  set_targets(comparison.batch(), {{0}, {-1}, {5}, {3}, {4}});

  comparison.check();
}

TEST_CASE("onednn: a loss without gradient or counts adds to the loss only", "[onednn]") {
  const Shape s{3, 1, 1, 7};
  BackendComparison comparison({s, s}, 1,
                               {SoftmaxCrossEntropy{0, no_tensor, 0, 0.4f, false}, Add{0, 0, 1}});
  set_targets(comparison.batch(), {{1}, {-1}, {6}});

  comparison.check();
}

TEST_CASE("onednn: input is jittered, normalised and erased as by the reference", "[onednn]") {
  const int channels = GENERATE(1, 3, 5);
  const auto kind = GENERATE(Normalisation::standardise_image, Normalisation::mean_deviation);
  const bool jitter = GENERATE(false, true), erase = GENERATE(false, true);
  const bool clip = GENERATE(false, true) && kind == Normalisation::mean_deviation;
  CAPTURE(channels, jitter, clip, erase);
  const Shape s{3, 7, 5, channels};
  BackendComparison comparison(input_case(s, kind, jitter, clip, erase));
  Philox random(3, Purpose::synthetic);
  Batch& batch = comparison.batch();
  for (std::size_t i = 0; i < s.elements(); ++i)
    batch.images.push_back(static_cast<std::uint8_t>(i < s.features() ? 9 : random.below(256)));
  set_jitter(batch, {{}, {-20, 1.8f, 0.5f, -0.2f}, {63, 0.2f, 1.5f, 0.3f}});
  set_erased(batch, {{1, 2, 4, 3, 0.7f}, {}, {6, 0, 1, 4}});

  comparison.check();
}

TEST_CASE("onednn: two BatchNorms of one tensor do not mix up what they keep", "[onednn]") {
  const Shape s{3, 4, 5, 17};
  const std::size_t c = 17;
  const ParameterRange gamma1{0, c}, beta1{c, c}, gamma2{2 * c, c}, beta2{3 * c, c};
  BatchNormForward first{0, 3, no_tensor, gamma1, beta1, {0, 2 * c}};
  BatchNormForward second{0, 4, no_tensor, gamma2, beta2, {2 * c, 2 * c}};
  BatchNormBackward first_back{0, no_tensor, 1, no_tensor, 5, no_tensor, gamma1, beta1};
  BatchNormBackward second_back{0, no_tensor, 2, no_tensor, 6, no_tensor, gamma2, beta2};
  first.then = second.then = first_back.then = second_back.then = Activation::relu;

  BackendComparison({s, s, s, s, s, s, s}, 3, {first, second, first_back, second_back}, 4 * c,
                    4 * c)
      .check();
}
