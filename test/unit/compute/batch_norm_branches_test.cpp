// Two BatchNorms whose results are added, the first block of a ResNet stage: one g for both.
#include "support/batch_norm_state.hpp"
#include "support/catch.hpp"

using namespace ringtrain;
using namespace ringtrain::compute;
using namespace ringtrain::compute::reference;

namespace {

constexpr VectorId second = vectors_of_one;

BatchNormBackwardApply apply_both(TensorId g, TensorId x, TensorId dx, TensorId x2, TensorId dx2) {
  return {g,
          x,
          dx,
          g_scale,
          x_scale,
          shift,
          x2,
          dx2,
          second + g_scale,
          second + x_scale,
          second + shift};
}

// BatchNormSums of the second branch, whose parameters lie behind those of the first.
BatchNormSums sums_of_second(TensorId x) {
  BatchNormSums how = sums_after(x, no_tensor, no_tensor, no_tensor, Activation::none,
                                 ParameterRange{w.first, channels});
  how.beta = {w.first + channels, channels};
  for (VectorId* id : {&how.scale, &how.bias, &how.mean, &how.inverse_deviation, &how.g_scale,
                       &how.x_scale, &how.shift})
    *id += second;
  return how;
}

}  // namespace

TEST_CASE("batch norm branches: a scaled residual is the other branch's BatchNorm") {
  const TensorId x = 0, other = 1, y = 2, normal = 3;
  State s = state_of(std::vector<Shape>(4, image));
  for (const auto& [id, first] : {std::pair(x, 0), std::pair(other, second)}) {
    run(BatchNormStatistics{id, first + sums}, s);
    run(finalize(gamma_range, first), s);
  }
  const VectorId other_scale = second + scale, other_bias = second + bias;
  run(BatchNormApply{other, normal, {other_scale, other_bias}}, s);

  run(BatchNormApply{x, y, {scale, bias, normal, no_vector, no_vector, Activation::relu}}, s);
  const std::vector<double> in_two_steps = s[y];
  run(BatchNormApply{x, y, {scale, bias, other, other_scale, other_bias, Activation::relu}}, s);

  check_equal(s[y], in_two_steps);
}

TEST_CASE("batch norm branches: an input gradient sums up both branches of its residual") {
  const TensorId x = 0, other = 1, dy = 2, da = 3, g = 4;
  State apart = state_of({image, image, {2, 4, 5, 4}, image, image});
  for (const auto& [id, first] : {std::pair(x, 0), std::pair(other, second)}) {
    run(BatchNormStatistics{id, first + sums}, apart);
    run(finalize(gamma_range, first), apart);
  }
  State fused = apart;
  BatchNormSums how = sums_after(x, no_tensor, no_tensor, g, Activation::relu, gamma_range);
  how.residual = other;
  how.residual_scale = second + scale;
  how.residual_bias = second + bias;
  const BatchNormSums branch = sums_of_second(other);

  run(ConvolutionInputGradient{window, dy, da, w}, apart);
  run(BatchNormBackwardReduce{da, how}, apart);
  run(BatchNormBackwardReduce{g, branch}, apart);
  run(ConvolutionInputGradient{window, dy, no_tensor, w, how, branch}, fused);

  check_equal(fused[g], apart[g]);
  check_equal(fused.gradients, apart.gradients);
  CHECK(fused.vectors == apart.vectors);
}

TEST_CASE("batch norm branches: one step gives two BatchNorms the gradient that they share") {
  const TensorId g = 0, x = 1, x2 = 2, dx = 3, dx2 = 4;
  const bool in_place = GENERATE(true, false);
  State apart = state_of(std::vector<Shape>(5, image));
  for (std::size_t id = 0; id < apart.vectors.size(); ++id) fill_normal(apart.vectors[id], 20 + id);
  State together = apart;
  const BatchNormBackwardApply both = apply_both(g, x, in_place ? g : dx, x2, dx2);

  run(BatchNormBackwardApply{g, x, dx, g_scale, x_scale, shift}, apart);
  run(BatchNormBackwardApply{g, x2, dx2, both.g_scale2, both.x_scale2, both.shift2}, apart);
  run(both, together);

  check_equal(together[both.dx], apart[dx]);
  check_equal(together[dx2], apart[dx2]);
  CHECK(touched(both) == Touched{{g, Access::read},
                                 {x, Access::read},
                                 {x2, Access::read},
                                 {both.dx, Access::write},
                                 {dx2, Access::write}});
}

TEST_CASE("gradient: ReLU of the sum of two BatchNorms, by both inputs") {
  const TensorId x = 0, x2 = 1, y = 2, dy = 3, g = 4, dx = 5, dx2 = 6;
  State s = state_of(std::vector<Shape>(7, image));
  const BatchNormSums other = sums_of_second(x2);
  const auto run_forward = [&] {
    run(BatchNormStatistics{x, sums}, s);
    run(BatchNormStatistics{x2, second + sums}, s);
    run(finalize(gamma_range), s);
    BatchNormFinalize of_other = finalize(other.gamma, second);
    of_other.beta = other.beta;
    run(of_other, s);
    run(BatchNormApply{x, y, {scale, bias, x2, other.scale, other.bias, Activation::relu}}, s);
  };

  run_forward();
  run(BatchNormBackwardReduce{dy, sums_after(x, y, no_tensor, g, Activation::relu, gamma_range)},
      s);
  run(BatchNormBackwardReduce{g, other}, s);
  run(apply_both(g, x, dx, x2, dx2), s);

  const std::vector<double> r = s[dy];
  check_derivative(s, y, r, s[x], std::vector<double>(s[dx]), run_forward);
  check_derivative(s, y, r, s[x2], std::vector<double>(s[dx2]), run_forward);
  check_derivative(s, y, r, s.parameters, std::vector<double>(s.gradients), run_forward);
}
