// BatchNorm in pieces, alone and inside convolutions, against the whole and finite differences.
#include "support/activations.hpp"
#include "support/batch_norm_state.hpp"
#include "support/catch.hpp"

using namespace ringtrain;
using namespace ringtrain::compute;
using namespace ringtrain::compute::reference;

TEST_CASE("batch norm pieces: together they are the whole, forward") {
  const std::optional<ParameterRange> gamma =
      GENERATE(std::optional<ParameterRange>(), std::optional(gamma_range));
  const bool relu = GENERATE(true, false), residual = GENERATE(true, false);
  const TensorId x = 0, r = residual ? 1 : no_tensor, y = 2;
  State whole = state_of(std::vector<Shape>(3, image)), pieces = whole;
  BatchNormForward norm{x, y, r, gamma, beta, {0, 2 * channels}};
  norm.then = relu_if(relu);

  run(norm, whole);
  run(BatchNormStatistics{x, sums}, pieces);
  run(finalize(gamma), pieces);
  run(BatchNormApply{x, y, {scale, bias, r, no_vector, no_vector, relu_if(relu)}}, pieces);

  check_equal(pieces[y], whole[y]);
  check_equal(pieces.batch_statistics, whole.batch_statistics);
}

TEST_CASE("batch norm pieces: together they are the whole, backward") {
  const std::optional<ParameterRange> gamma =
      GENERATE(std::optional<ParameterRange>(), std::optional(gamma_range));
  const bool relu = GENERATE(true, false), residual = GENERATE(true, false),
             two = GENERATE(true, false);
  CAPTURE(gamma.has_value(), relu, residual, two);
  const TensorId x = 0, r = residual ? 1 : no_tensor, y = 2, dy = 3, dy2 = two ? 4 : no_tensor,
                 dx = 5, g = 6, mask = relu && residual ? y : no_tensor;
  State whole = state_of(std::vector<Shape>(7, image)), pieces = whole;
  BatchNormForward norm{x, y, r, gamma, beta, {0, 2 * channels}};
  norm.then = relu_if(relu);
  const BatchNormBackward backward{x, mask, dy, dy2, dx, g, gamma, beta, norm.epsilon, norm.then};

  run(norm, whole);
  run(backward, whole);
  run(BatchNormStatistics{x, sums}, pieces);
  run(finalize(gamma), pieces);
  run(BatchNormApply{x, y, {scale, bias, r, no_vector, no_vector, relu_if(relu)}}, pieces);
  run(BatchNormBackwardReduce{dy, sums_after(x, mask, dy2, g, norm.then, gamma)}, pieces);
  run(BatchNormBackwardApply{g, x, dx, g_scale, x_scale, shift}, pieces);

  check_equal(pieces[dx], whole[dx]);
  check_equal(pieces[g], whole[g]);
  check_equal(pieces.gradients, whole.gradients);
}

TEST_CASE("batch norm pieces: backward may write over the gradients it reads") {
  const TensorId x = 0, dy = 1, g = 2, dx = 3;
  State apart = state_of(std::vector<Shape>(4, image));
  run(BatchNormStatistics{x, sums}, apart);
  run(finalize(gamma_range), apart);
  State in_place = apart;

  run(BatchNormBackwardReduce{dy, sums_after(x, no_tensor, no_tensor, g, Activation::relu,
                                             gamma_range)},
      apart);
  run(BatchNormBackwardApply{g, x, dx, g_scale, x_scale, shift}, apart);
  run(BatchNormBackwardReduce{dy, sums_after(x, no_tensor, no_tensor, dy, Activation::relu,
                                             gamma_range)},
      in_place);
  run(BatchNormBackwardApply{dy, x, dy, g_scale, x_scale, shift}, in_place);

  check_equal(in_place[dy], apart[dx]);
  check_equal(in_place.gradients, apart.gradients);
}

TEST_CASE("batch norm pieces: without ReLU and second gradient nothing is written") {
  const TensorId x = 0, dy = 1, dx = 2;
  State s = state_of(std::vector<Shape>(3, image));
  run(BatchNormForward{x, dx, no_tensor, gamma_range, beta, {0, 2 * channels}}, s);
  run(BatchNormBackward{x, no_tensor, dy, no_tensor, dx, no_tensor, gamma_range, beta}, s);
  const std::vector<double> expected = s[dx];
  run(BatchNormStatistics{x, sums}, s);
  run(finalize(gamma_range), s);

  run(BatchNormBackwardReduce{dy, sums_after(x, no_tensor, no_tensor, no_tensor, Activation::none,
                                             gamma_range)},
      s);
  run(BatchNormBackwardApply{dy, x, dx, g_scale, x_scale, shift}, s);

  check_equal(s[dx], expected);
}

TEST_CASE("batch norm pieces: a convolution's prologue and sums are the steps around it") {
  const bool relu = GENERATE(true, false), residual = GENERATE(true, false),
             scaled = GENERATE(true, false), bias_too = GENERATE(true, false);
  const Shape out{2, 4, 5, 4};
  const TensorId x = 0, a = 1, other = residual ? 2 : no_tensor, y = 3;
  State apart = state_of({image, image, image, out, image}), fused = apart;
  AppliedNorm how{scale, bias, other, no_vector, no_vector, relu_if(relu)};
  if (residual && scaled) how.residual_scale = mean, how.residual_bias = inverse;
  // Eight sums for the four output channels.
  for (State* s : {&apart, &fused}) {
    s->vectors[sums].resize(8);
    for (const VectorId id : {scale, bias, mean, inverse}) fill_normal(s->vectors[id], 20 + id);
  }
  ConvolutionForward convolution{window, a, y, w};
  if (bias_too) convolution.b = ParameterRange{0, 4};
  convolution.then = relu_if(bias_too);

  run(BatchNormApply{x, a, how}, apart);
  run(convolution, apart);
  run(BatchNormStatistics{y, sums}, apart);
  convolution.x = x;
  convolution.prologue = how;
  convolution.prologue->y = a;
  convolution.sums = sums;
  run(convolution, fused);

  check_equal(fused[a], apart[a]);
  check_equal(fused[y], apart[y]);
  check_equal(fused.vectors[sums], apart.vectors[sums]);
}

TEST_CASE("batch norm pieces: a weight gradient's prologue stands for the activated tensor") {
  const TensorId x = 0, a = 1, dy = 2;
  State apart = state_of({image, image, {2, 4, 5, 4}});
  for (const VectorId id : {scale, bias}) fill_normal(apart.vectors[id], 20 + id);
  State fused = apart;
  const AppliedNorm how{scale, bias, no_tensor, no_vector, no_vector, Activation::relu};

  run(BatchNormApply{x, a, how}, apart);
  run(ConvolutionWeightGradient{window, a, dy, w}, apart);
  run(ConvolutionWeightGradient{window, x, dy, w, std::nullopt, how}, fused);

  check_equal(fused.gradients, apart.gradients);
}

TEST_CASE("batch norm pieces: an input gradient's epilogue is the reduction after it") {
  const bool skips = GENERATE(true, false), from_y = GENERATE(true, false);
  const TensorId x = 0, y = from_y ? 1 : no_tensor, skip = skips ? 2 : no_tensor, dy = 3, da = 4,
                 g = 5;
  State apart = state_of({image, image, image, {2, 4, 5, 4}, image, image});
  run(BatchNormStatistics{x, sums}, apart);
  run(finalize(gamma_range), apart);
  State fused = apart;
  const BatchNormSums how = sums_after(x, y, skip, g, Activation::relu, gamma_range);

  run(ConvolutionInputGradient{window, dy, da, w}, apart);
  run(BatchNormBackwardReduce{da, how}, apart);
  run(ConvolutionInputGradient{window, dy, no_tensor, w, how}, fused);

  check_equal(fused[g], apart[g]);
  check_equal(fused.gradients, apart.gradients);
  for (const VectorId id : {g_scale, x_scale, shift})
    check_equal(fused.vectors[id], apart.vectors[id]);
}

TEST_CASE("batch norm pieces: the mask made anew from a residual is that of the stored output") {
  const bool scaled = GENERATE(true, false);
  const TensorId x = 0, residual = 1, y = 2, dy = 3, g = 4;
  State from_y = state_of(std::vector<Shape>(5, image));
  run(BatchNormStatistics{x, sums}, from_y);
  run(finalize(gamma_range), from_y);
  AppliedNorm forward{scale, bias, residual, no_vector, no_vector, Activation::relu};
  if (scaled) forward.residual_scale = mean, forward.residual_bias = inverse;
  run(BatchNormApply{x, y, forward}, from_y);
  State anew = from_y;
  BatchNormSums how = sums_after(x, y, no_tensor, g, Activation::relu, gamma_range);

  run(BatchNormBackwardReduce{dy, how}, from_y);
  how.y = no_tensor;
  how.residual = residual;
  how.residual_scale = forward.residual_scale;
  how.residual_bias = forward.residual_bias;
  run(BatchNormBackwardReduce{dy, how}, anew);

  check_equal(anew[g], from_y[g]);
  check_equal(anew.gradients, from_y.gradients);
}

TEST_CASE("gradient: BatchNorm + ReLU inside the convolution that reads it") {
  const Window taps = GENERATE(Window{}, window, Window{3, 3, 2, 2, 1, 1, 1, 1});
  const Shape out{2, (4 + 2 * taps.top - taps.height) / taps.stride_y + 1,
                  (5 + 2 * taps.left - taps.width) / taps.stride_x + 1, 4};
  const TensorId x = 0, y = 1, dy = 2, g = 3, dx = 4;
  State s = state_of({image, out, out, image, image});
  const AppliedNorm how{scale, bias, no_tensor, no_vector, no_vector, Activation::relu};
  const ParameterRange weights{w.first, std::size_t(4) * taps.height * taps.width * channels};
  const auto run_forward = [&] {
    run(BatchNormStatistics{x, sums}, s);
    run(finalize(gamma_range), s);
    run(ConvolutionForward{taps, x, y, weights, std::nullopt, Activation::none, how}, s);
  };

  run_forward();
  run(ConvolutionWeightGradient{taps, x, dy, weights, std::nullopt, how}, s);
  run(ConvolutionInputGradient{taps, dy, no_tensor, weights,
                               sums_after(x, no_tensor, no_tensor, g, Activation::relu,
                                          gamma_range)},
      s);
  run(BatchNormBackwardApply{g, x, dx, g_scale, x_scale, shift}, s);

  const std::vector<double> r = s[dy];
  check_derivative(s, y, r, s[x], std::vector<double>(s[dx]), run_forward);
  check_derivative(s, y, r, s.parameters, std::vector<double>(s.gradients), run_forward);
}

TEST_CASE("batch norm pieces: what writes gamma's and beta's gradients makes them final") {
  const BatchNormSums how = sums_after(0, no_tensor, no_tensor, 1, Activation::relu, gamma_range);
  const std::vector<ParameterRange> both{beta, gamma_range};

  CHECK(gradients_written(BatchNormBackwardReduce{2, how}) == both);
  CHECK(gradients_written(ConvolutionInputGradient{window, 2, no_tensor, w, how}) == both);
  CHECK(gradients_written(ConvolutionInputGradient{window, 2, no_tensor, w, how, how}) ==
        std::vector<ParameterRange>{beta, gamma_range, beta, gamma_range});
  CHECK(gradients_written(ConvolutionInputGradient{window, 2, 1, w}).empty());
}

TEST_CASE("batch norm pieces: fused steps name every tensor they touch") {
  const AppliedNorm how{scale, bias, 5, no_vector, no_vector, Activation::relu, 6};

  CHECK(touched(ConvolutionForward{window, 0, 1, w, std::nullopt, Activation::none, how}) ==
        Touched{{0, Access::read}, {5, Access::read}, {6, Access::write}, {1, Access::write}});
  BatchNormSums reduce = sums_after(1, 2, 3, 4, Activation::relu, gamma_range);
  reduce.residual = 5;
  const BatchNormSums of_residual =
      sums_after(6, no_tensor, no_tensor, no_tensor, Activation::none, gamma_range);
  CHECK(touched(ConvolutionInputGradient{window, 0, no_tensor, w, reduce, of_residual}) ==
        Touched{{0, Access::read},
                {1, Access::read},
                {2, Access::read},
                {3, Access::read},
                {5, Access::read},
                {4, Access::write},
                {6, Access::read}});
}

TEST_CASE("batch norm pieces: oneDNN takes none into convolutions that are not Winograd's") {
  const auto onednn = make_onednn_backend();
  Schedule schedule;
  schedule.tensors = std::vector<Shape>(3, image);
  const auto supports = [&](const Step& step) { return onednn->supports(schedule, step); };
  const AppliedNorm how{scale, bias};
  const BatchNormSums reduce =
      sums_after(0, no_tensor, no_tensor, 1, Activation::relu, gamma_range);

  CHECK_FALSE(supports(BatchNormApply{0, 1, how}));  // so that no BatchNorm is split
  const ConvolutionForward with_prologue{window, 0, 1, w, std::nullopt, Activation::none, how},
      with_sums{window, 0, 1, w, std::nullopt, Activation::none, std::nullopt, sums};
  CHECK_FALSE(supports(with_prologue));
  CHECK_FALSE(supports(with_sums));
  CHECK_FALSE(supports(ConvolutionWeightGradient{window, 0, 1, w, std::nullopt, how}));
  CHECK_FALSE(supports(ConvolutionInputGradient{window, 2, no_tensor, w, reduce}));
  CHECK(supports(ConvolutionForward{window, 0, 1, w}));
  CHECK(supports(ConvolutionWeightGradient{window, 0, 1, w}));
  CHECK(supports(ConvolutionInputGradient{window, 0, 1, w}));
  CHECK(supports(BatchNormForward{0, 1, no_tensor, gamma_range, beta, {0, 6}}));

  schedule.vectors = {2 * channels};
  schedule.steps = {with_sums};
  CHECK_THROWS_WITH(onednn->compile(schedule, {}, 1),
                    Catch::Contains("ConvolutionForward") && Catch::Contains("oneDNN"));
}
