// BatchNorm in pieces inside the max pool behind it, against the steps apart and finite
// differences.
#include "support/batch_norm_state.hpp"
#include "support/catch.hpp"

using namespace ringtrain;
using namespace ringtrain::compute;
using namespace ringtrain::compute::reference;

namespace {

const AppliedNorm activation{scale, bias, no_tensor, no_vector, no_vector, Activation::relu};

Window any_window() {
  return GENERATE(Window{3, 3, 2, 2, 1, 1, 1, 1}, Window{2, 2, 2, 2}, Window{3, 3, 1, 1},
                  Window{3, 2, 2, 1, 0, 1, 1, 0});
}

Shape pooled(const Window& w) {
  return {image.batch, (image.height + w.top + w.bottom - w.height) / w.stride_y + 1,
          (image.width + w.left + w.right - w.width) / w.stride_x + 1, channels};
}

// With a BatchNorm of tensor 0, whose values are few: maxima are not unique.
State state_with_ties(const std::vector<Shape>& tensors) {
  State s = state_of(tensors);
  for (double& v : s[0]) v = std::round(2 * v);
  run(BatchNormStatistics{0, sums}, s);
  run(finalize(gamma_range), s);
  return s;
}

}  // namespace

TEST_CASE("batch norm in pools: a prologue stands for the activated tensor") {
  const Window taps = any_window();
  const Shape out = pooled(taps);
  const TensorId x = 0, dy = 1, a = 2, y = 3, dx = 4;
  State apart = state_with_ties({image, out, image, out, image}), fused = apart;

  run(BatchNormApply{x, a, activation}, apart);
  run(MaxPoolForward{taps, a, y}, apart);
  run(MaxPoolBackward{taps, a, y, dy, dx}, apart);
  run(MaxPoolForward{taps, x, y, activation}, fused);
  run(MaxPoolBackward{taps, x, no_tensor, dy, dx, no_tensor, activation}, fused);

  check_equal(fused[y], apart[y]);
  check_equal(fused[dx], apart[dx]);
}

TEST_CASE("batch norm in pools: an epilogue is the reduction after it, of the sum of two") {
  const Window taps = any_window();
  const bool skips = GENERATE(true, false), from_y = GENERATE(true, false);
  const Shape out = pooled(taps);
  const TensorId x = 0, dy = 1, dy2 = 2, skip = skips ? 3 : no_tensor, a = 4, y = 5, sum = 6,
                 da = 7, g = 8;
  State apart = state_with_ties({image, out, out, image, image, out, out, image, image});
  run(BatchNormApply{x, a, activation}, apart);
  run(MaxPoolForward{taps, a, y}, apart);
  State fused = apart;
  const BatchNormSums how =
      sums_after(x, from_y ? a : no_tensor, skip, g, Activation::relu, gamma_range);

  run(Add{dy, dy2, sum}, apart);
  run(MaxPoolBackward{taps, a, y, sum, da}, apart);
  run(BatchNormBackwardReduce{da, how}, apart);
  run(MaxPoolBackward{taps, a, y, dy, no_tensor, dy2, std::nullopt, how}, fused);

  check_equal(fused[g], apart[g]);
  check_equal(fused.gradients, apart.gradients);
  for (const VectorId id : {g_scale, x_scale, shift})
    check_equal(fused.vectors[id], apart.vectors[id]);
}

TEST_CASE("gradient: BatchNorm + ReLU inside the max pool that reads it") {
  const Window taps = any_window();
  const Shape out = pooled(taps);
  const TensorId x = 0, y = 1, dy = 2, dy2 = 3, g = 4, dx = 5;
  State s = state_of({image, out, out, out, image, image});
  const auto run_forward = [&] {
    run(BatchNormStatistics{x, sums}, s);
    run(finalize(gamma_range), s);
    run(MaxPoolForward{taps, x, y, activation}, s);
  };

  run_forward();
  run(MaxPoolBackward{taps, x, no_tensor, dy, no_tensor, dy2, activation,
                      sums_after(x, no_tensor, no_tensor, g, Activation::relu, gamma_range)},
      s);
  run(BatchNormBackwardApply{g, x, dx, g_scale, x_scale, shift}, s);

  std::vector<double> r = s[dy];
  for (std::size_t i = 0; i < r.size(); ++i) r[i] += s[dy2][i];
  check_derivative(s, y, r, s[x], std::vector<double>(s[dx]), run_forward);
  check_derivative(s, y, r, s.parameters, std::vector<double>(s.gradients), run_forward);
}

TEST_CASE("batch norm in pools: the steps name what they touch and write, oneDNN has none") {
  const BatchNormSums how = sums_after(0, no_tensor, 4, 5, Activation::relu, gamma_range);
  const MaxPoolBackward plain{window, 0, 1, 2, 3}, two{window, 0, 1, 2, 3, 4};
  const MaxPoolBackward all{window, 0, no_tensor, 2, no_tensor, 3, activation, how};
  const MaxPoolForward prologue{window, 0, 1, activation};
  const auto onednn = make_onednn_backend();

  CHECK(touched(all) == Touched{{0, Access::read},
                                {2, Access::read},
                                {3, Access::read},
                                {0, Access::read},
                                {4, Access::read},
                                {5, Access::write}});
  CHECK(gradients_written(all) == std::vector<ParameterRange>{beta, gamma_range});
  CHECK(gradients_written(plain).empty());
  CHECK(onednn->supports({}, plain));
  CHECK(onednn->supports({}, MaxPoolForward{window, 0, 1}));
  for (const Step& step : {Step(two), Step(all), Step(prologue)})
    CHECK_FALSE(onednn->supports({}, step));
}
