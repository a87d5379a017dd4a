// Every derivative of the reference against central differences, in double precision.
#include <numeric>

#include "support/activations.hpp"
#include "support/catch.hpp"
#include "support/gradient_check.hpp"
#include "support/random_batch.hpp"

using namespace ringtrain;
using namespace ringtrain::compute;
using namespace ringtrain::compute::reference;

namespace {

// One forward step from tensor 0 (x) to tensor 1 (y); tensors 2 and 3 are dy and dx.
State pair_state(Shape x, Shape y, std::size_t parameters = 0) {
  Schedule schedule;
  schedule.tensors = {x, y, y, x};
  schedule.parameters = parameters;
  schedule.statistics = 2 * x.channels;
  State s(schedule, 1);
  fill_normal(s[0], 1);
  fill_normal(s[2], 2);
  fill_normal(s.parameters, 3);
  return s;
}

template <class Forward, class... Backward>
void check_pair(State s, const Forward& forward, const Backward&... backward) {
  const auto run_forward = [&] { run(forward, s); };
  run_forward();
  (run(backward, s), ...);
  const std::vector<double> r = s[2], dx = s[3], dw = s.gradients;
  check_derivative(s, 1, r, s[0], dx, run_forward);
  check_derivative(s, 1, r, s.parameters, dw, run_forward);
}

constexpr TensorId x = 0, y = 1, dy = 2, dx = 3;

}  // namespace

TEST_CASE("gradient: convolution, any kernel, stride and padding, with bias") {
  const Window window =
      GENERATE(Window{}, Window{3, 3, 1, 1, 1, 1, 1, 1}, Window{3, 2, 2, 1, 0, 1, 1, 0},
               Window{1, 1, 2, 2}, Window{5, 5, 2, 2, 1, 2, 2, 2}, Window{1, 7, 1, 1, 0, 3, 0, 3});
  const Shape in{2, 5, 6, 3};
  const Shape out{2, (5 + window.top + window.bottom - window.height) / window.stride_y + 1,
                  (6 + window.left + window.right - window.width) / window.stride_x + 1, 4};
  const std::size_t weights = std::size_t(4) * window.height * window.width * 3;
  const ParameterRange w{0, weights}, b{weights, 4};

  check_pair(pair_state(in, out, weights + 4), ConvolutionForward{window, x, y, w, b},
             ConvolutionInputGradient{window, dy, dx, w},
             ConvolutionWeightGradient{window, x, dy, w, b});
}

TEST_CASE("gradient: convolution in groups and with dilation") {
  const int groups = GENERATE(1, 2, 6), dilation = GENERATE(1, 2);
  CAPTURE(groups, dilation);
  const ConvolutionShape window(Window{3, 2, 1, 2, 1, 0, 1, 1}, groups, dilation);
  const Shape in{2, 5, 6, 6}, out{2, 5 - 2 * (dilation - 1), (6 - dilation) / 2 + 1, 12};
  const std::size_t weights = std::size_t(12) * 3 * 2 * 6 / groups;
  const ParameterRange w{0, weights}, b{weights, 12};

  check_pair(pair_state(in, out, weights + 12), ConvolutionForward{window, x, y, w, b},
             ConvolutionInputGradient{window, dy, dx, w},
             ConvolutionWeightGradient{window, x, dy, w, b});
}

TEST_CASE("gradient: matrix product with bias") {
  const ParameterRange w{0, 5 * 12}, b{60, 5};

  check_pair(pair_state({3, 2, 2, 3}, {3, 1, 1, 5}, 65), MatrixProductForward{x, y, w, b},
             MatrixProductInputGradient{dy, dx, w}, MatrixProductWeightGradient{x, dy, w, b});
}

TEST_CASE("gradient: every activation") {
  const Activation f = any_activation();
  CAPTURE(name_of(f));
  check_pair(pair_state({2, 3, 3, 5}, {2, 3, 3, 5}), Pointwise{f, x, y},
             PointwiseBackward{f, facts_of(f).slope_of_output ? y : x, dy, dx});
}

TEST_CASE("gradient: BatchNorm with and without gamma, every activation behind it") {
  const bool gamma = GENERATE(true, false);
  const Activation then = any_activation();
  CAPTURE(gamma, name_of(then));
  const ParameterRange beta{0, 3};
  const std::optional<ParameterRange> scale =
      gamma ? std::optional<ParameterRange>({3, 3}) : std::nullopt;
  BatchNormForward forward{x, y, no_tensor, scale, beta, {0, 6}};
  BatchNormBackward backward{x, no_tensor, dy, no_tensor, dx, no_tensor, scale, beta};
  forward.then = backward.then = then;

  check_pair(pair_state({3, 2, 3, 3}, {3, 2, 3, 3}, gamma ? 6 : 3), forward, backward);
}

TEST_CASE("gradient: BatchNorm of running statistics") {
  const bool gamma = GENERATE(true, false);
  const std::optional<ParameterRange> scale =
      gamma ? std::optional<ParameterRange>({3, 3}) : std::nullopt;
  BatchNormForward forward{x, y, no_tensor, scale, {0, 3}, {0, 6}};
  forward.training = false;
  Schedule schedule;
  schedule.tensors = std::vector<Shape>(4, Shape{3, 2, 2, 3});
  schedule.parameters = 6;
  schedule.statistics = 6;
  State s(schedule, 1);
  for (const TensorId id : {x, dy}) fill_normal(s[id], 10 + id);
  fill_normal(s.parameters, 3);
  s.statistics = {0.1, -0.2, 0.3, 0.5, 1.5, 2.5};
  const auto run_forward = [&] { run(forward, s); };

  run_forward();
  run(BatchNormInputGradient{dy, dx, scale, {0, 3}, {0, 6}}, s);

  check_derivative(s, y, s[dy], s[x], std::vector<double>(s[dx]), run_forward);
}

TEST_CASE("gradient: BatchNorm + residual + ReLU, by input and residual, of two summed gradients") {
  Schedule schedule;
  schedule.tensors = std::vector<Shape>(7, Shape{3, 2, 2, 3});
  schedule.parameters = 6;
  schedule.statistics = 6;
  State s(schedule, 1);
  const TensorId residual = 4, dresidual = 5, dy2 = 6;
  for (const TensorId id : {x, dy, residual, dy2}) fill_normal(s[id], 10 + id);
  fill_normal(s.parameters, 3);
  BatchNormForward forward{x, y, residual, ParameterRange{3, 3}, {0, 3}, {0, 6}};
  BatchNormBackward backward{x, y, dy, dy2, dx, dresidual, ParameterRange{3, 3}, {0, 3}};
  forward.then = backward.then = Activation::relu;
  const auto run_forward = [&] { run(forward, s); };

  run_forward();
  run(backward, s);

  std::vector<double> r = s[dy];
  for (std::size_t i = 0; i < r.size(); ++i) r[i] += s[dy2][i];
  check_derivative(s, y, r, s[x], std::vector<double>(s[dx]), run_forward);
  check_derivative(s, y, r, s[residual], std::vector<double>(s[dresidual]), run_forward);
  check_derivative(s, y, r, s.parameters, std::vector<double>(s.gradients), run_forward);
}

TEST_CASE("gradient: pools, with padding and windows that overlap") {
  const Window window = GENERATE(Window{3, 3, 2, 2, 0, 0, 1, 1}, Window{2, 2, 2, 2},
                                 Window{3, 3, 1, 1, 1, 1, 1, 1}, Window{6, 6, 1, 1});
  const int out = (6 + window.top + window.bottom - window.height) / window.stride_y + 1;
  const State s = pair_state({2, 6, 6, 3}, {2, out, out, 3});

  check_pair(s, MaxPoolForward{window, x, y}, MaxPoolBackward{window, x, y, dy, dx});
  check_pair(s, AveragePoolForward{window, x, y}, AveragePoolBackward{window, dy, dx});
}

TEST_CASE("gradient: a filter that is the same for all channels, and a mirrored border") {
  const Window window{3, 2, 2, 1, 1, 0, 1, 1};
  const std::vector<float> taps{1, 2, 3, 4, 5, -6};

  check_pair(pair_state({2, 5, 6, 3}, {2, 3, 6, 3}), FilterForward{window, taps, x, y},
             FilterBackward{window, taps, dy, dx});
  check_pair(pair_state({2, 3, 4, 2}, {2, 7, 8, 2}), ReflectPadForward{x, y, 2},
             ReflectPadBackward{dy, dx, 2});
}

TEST_CASE("gradient: LRN, windows cut at both ends") {
  const int radius = GENERATE(1, 4, 9);
  const attributes::Lrn how{.radius = radius, .alpha = 0.3f};
  const LrnForward forward{how, x, y};
  const LrnBackward backward{how, x, dy, dx};

  check_pair(pair_state({2, 2, 1, 7}, {2, 2, 1, 7}), forward, backward);
}

TEST_CASE("gradient: shortcut that drops pixels and adds channels") {
  check_pair(pair_state({2, 5, 4, 3}, {2, 3, 2, 6}), ShortcutForward{x, y},
             ShortcutBackward{dy, dx});
}

TEST_CASE("gradient: a factor for each channel, by the image and by the factors") {
  Schedule schedule;
  const Shape image{2, 3, 2, 5}, factors{2, 1, 1, 5};
  schedule.tensors = {image, image, image, image, factors, factors};
  State s(schedule, 1);
  for (const TensorId id : {0, 2, 4}) fill_normal(s[id], 1 + id);
  const auto run_forward = [&] { run(ScaleForward{x, 4, y}, s); };

  run_forward();
  run(ScaleBackward{x, 4, dy, dx, 5}, s);

  const std::vector<double> r = s[dy];
  check_derivative(s, y, r, s[x], std::vector<double>(s[dx]), run_forward);
  check_derivative(s, y, r, s[4], std::vector<double>(s[5]), run_forward);
}

TEST_CASE("gradient: LayerNorm over the channels of each pixel") {
  const ParameterRange gamma{0, 5}, beta{5, 5};

  check_pair(pair_state({2, 2, 3, 5}, {2, 2, 3, 5}, 10), LayerNormForward{x, y, gamma, beta, 0.1f},
             LayerNormBackward{x, dy, dx, gamma, beta, 0.1f});
}

TEST_CASE("gradient: multiplication by a number") {
  check_pair(pair_state({2, 2, 3, 5}, {2, 2, 3, 5}), Multiply{x, y, -0.7f},
             Multiply{dy, dx, -0.7f});
}

TEST_CASE("gradient: stochastic depth keeps whole samples, the same in both directions") {
  State s = pair_state({40, 2, 2, 3}, {40, 2, 2, 3});
  Batch batch;
  for (std::uint32_t n = 0; n < 40; ++n) batch.samples.push_back({100 + n, n % 3});
  s.batch = &batch;
  const attributes::Dropout how{0.6f, 3, true};

  run(Dropout{how, x, y}, s);
  int kept = 0;
  for (int n = 0; n < 40; ++n) {
    const auto zeros = std::count(s[y].begin() + n * 12, s[y].begin() + (n + 1) * 12, 0.0);
    CHECK((zeros == 0 || zeros == 12));
    kept += zeros == 0;
  }
  CHECK(kept > 10);
  CHECK(kept < 35);

  check_pair(std::move(s), Dropout{how, x, y}, Dropout{how, dy, dx});
}

TEST_CASE("gradient: dropout is its own derivative, with the same mask") {
  State s = pair_state({3, 2, 2, 8}, {3, 2, 2, 8});
  Batch batch;
  batch.samples = {{5, 1}, {6, 1}, {7, 2}};
  s.batch = &batch;

  check_pair(std::move(s), Dropout{{0.6f, 3}, x, y}, Dropout{{0.6f, 3}, dy, dx});
}

TEST_CASE("gradient: concatenation hands each input its channels") {
  Schedule schedule;
  schedule.tensors = {{2, 2, 2, 3}, {2, 2, 2, 5}, {2, 2, 2, 8}, {2, 2, 2, 3}, {2, 2, 2, 5}};
  State s(schedule, 1);
  fill_normal(s[0], 1);
  fill_normal(s[1], 2);

  run(Concat{{0, 1}, 2}, s);
  run(ChannelSlice{2, 3, 0}, s);
  run(ChannelSlice{2, 4, 3}, s);

  CHECK(s[3] == s[0]);
  CHECK(s[4] == s[1]);
}

TEST_CASE("gradient: softmax cross-entropy with smoothing, weights, mixed and padded samples") {
  const auto class_weights =
      GENERATE(std::vector<float>{}, std::vector<float>{0.5f, 2, 0, 1, 3, 0.25f, 1.5f});
  Schedule schedule;
  schedule.tensors = {{4, 1, 1, 7}, {4, 1, 1, 7}};
  State s(schedule, 1);
  fill_normal(s[0], 1);
  Batch batch;
  set_targets(batch, {{2}, {-1}, {6, 0, 0.3f}, {4, 4, 0.8f}});
  s.batch = &batch;
  s.sample_weight = 0.25;
  SoftmaxCrossEntropy step{0, 1, 0.1f, 0.5f, true, class_weights};
  step.binary = GENERATE(values<std::optional<SoftmaxCrossEntropy::Binary>>(
      {std::nullopt, SoftmaxCrossEntropy::Binary{}, SoftmaxCrossEntropy::Binary{true, 0.2f}}));
  const auto loss = [&] {
    s.result = {};
    run_step(step, s);
    return s.result.loss * s.sample_weight;
  };

  loss();

  const std::vector<double> analytic = s[1];
  CHECK(s.result.samples == 3);
  for (std::size_t i = 0; i < analytic.size(); ++i) {
    const double h = 1e-5, kept = s[0][i];
    s[0][i] = kept + h;
    const double above = loss();
    s[0][i] = kept - h;
    const double below = loss();
    s[0][i] = kept;
    CHECK((above - below) / (2 * h) == Approx(analytic[i]).margin(1e-9).epsilon(1e-6));
  }
}
