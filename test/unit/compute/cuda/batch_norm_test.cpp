// The pieces of BatchNorm, on whole tensors, against the steps of the reference.
#include "compute/cuda/kernels/device/batch_norm_work.hpp"
#include "support/kernel_case.hpp"
#include "support/sanitized.hpp"
#include "unit/compute/cuda/kernel_inputs.hpp"

using namespace ringtrain;
using namespace ringtrain::compute;
using namespace ringtrain::compute::cuda::kernels;

namespace {

/// Two gamma and beta, and the vectors of a BatchNorm, for kernels and reference.
struct Norm {
  std::size_t channels, count;
  ParameterRange gamma, beta;
  std::optional<ParameterRange> used_gamma;
  KernelCase c;
  std::vector<float> parameters, gradients, statistics, workspace;
  std::vector<std::vector<float>> vectors;

  Norm(Element element, const Shape& s, bool with_gamma, int tensors, TensorId first_written,
       const std::function<double(double)>& map = {})
      : channels(s.channels),
        count(s.pixels()),
        gamma{0, channels},
        beta{channels, channels},
        c(element, schedule(s, tensors), first_written, map),
        parameters(2 * channels),
        gradients(2 * channels),
        statistics(2 * channels),
        workspace(sums_workspace(count, channels, 2) / sizeof(float)) {
    if (with_gamma) used_gamma = gamma;
    for (const auto& vector : c.state.vectors) vectors.emplace_back(vector.size());
    Philox random(99, Purpose::initialise);
    for (std::size_t i = 0; i < parameters.size(); ++i)
      c.state.parameters[i] = parameters[i] = static_cast<float>(random.normal());
  }

  static Schedule schedule(const Shape& s, int tensors) {
    Schedule schedule;
    schedule.tensors.assign(tensors, s);
    schedule.parameters = schedule.statistics = 2 * s.channels;
    schedule.vectors.assign(last_vector, s.channels);
    schedule.vectors[sums] *= 2;
    return schedule;
  }
  const float* gamma_values() const { return used_gamma ? parameters.data() : nullptr; }
  const float* beta_values() const { return parameters.data() + channels; }
  /// Gives a vector of the reference the kernels' values, so that each piece is judged alone.
  void check_vector(VectorId id, double tolerance = 1e-5) {
    CAPTURE(id);
    CHECK(relative_norm(vectors[id], c.state.vectors[id]) < tolerance);
  }
  void fill_vectors() {
    Philox random(5, Purpose::initialise);
    for (std::size_t id = 0; id < vectors.size(); ++id)
      for (std::size_t i = 0; i < vectors[id].size(); ++i)
        c.state.vectors[id][i] = vectors[id][i] =
            static_cast<float>(std::abs(random.normal()) + 0.1) * (id == mean ? -0.1f : 1.f);
  }
};

/// Copies of scale and bias in the type of the activations.
struct Narrow {
  DeviceTensor scales, biases;
  Narrow(Element element, std::size_t channels)
      : scales(element, channels), biases(element, channels), expected_(element, channels) {}
  /// They are what the fp32 ones round to, exactly.
  void check(const Norm& n) {
    CHECK(scales.read() == rounded(n.vectors[norm_scale]));
    CHECK(biases.read() == rounded(n.vectors[bias]));
  }

 private:
  std::vector<double> rounded(const std::vector<float>& values) {
    expected_.write(std::vector<double>(values.begin(), values.end()));
    return expected_.read();
  }
  DeviceTensor expected_;
};

int any_norm_channels() {
  return sanitized ? GENERATE(1, 8, 17, 264) : GENERATE(1, 3, 8, 17, 64, 264);
}
Shape any_shape() { return {sanitized ? 3 : GENERATE(1, 3), 19, 17, any_norm_channels()}; }
/// ReLU meets every shape, the other activations one of whole vectors and one of odd channels.
Shape shape_for(Activation f) {
  return f == Activation::relu ? any_shape() : Shape{1, 19, 17, GENERATE(8, 17)};
}

}  // namespace

TEST_CASE("cuda kernels: statistics and what is made of them agree with the reference") {
  const Element element = any_element();
  const Shape s = GENERATE(0, 1) ? any_shape() : Shape{1, 1, GENERATE(1, 2), 5};
  const bool with_gamma = GENERATE(false, true), unbiased = GENERATE(false, true);
  CAPTURE(element, s.batch, s.width, s.channels, with_gamma, unbiased);
  Norm n(element, s, with_gamma, 1, 1, [](double v) { return 2 * v + 1; });
  Narrow narrow(element, n.channels);
  BatchNormFinalize step{sums,   s.pixels(), n.used_gamma, n.beta, {0, 2 * n.channels},
                         1e-3f,  unbiased,   norm_scale,   bias,   mean,
                         inverse};
  const BatchNormFinalizeOperands o{n.channels,
                                    s.pixels(),
                                    n.vectors[sums].data(),
                                    n.gamma_values(),
                                    n.beta_values(),
                                    1e-3f,
                                    unbiased,
                                    n.statistics.data(),
                                    n.vectors[norm_scale].data(),
                                    n.vectors[bias].data(),
                                    n.vectors[mean].data(),
                                    n.vectors[inverse].data(),
                                    element,
                                    narrow.scales.data(),
                                    narrow.biases.data()};

  run_twice({bytes_of_values(n.vectors[sums])}, [&](auto& queue) {
    work::batch_norm_statistics(element, s.pixels(), n.channels, n.c[0], 0, n.vectors[sums].data(),
                                n.workspace.data(), queue);
  });
  run_twice({bytes_of_values(n.vectors[norm_scale]), bytes_of_values(n.vectors[bias]),
             bytes_of_values(n.statistics), narrow.scales.bytes(), narrow.biases.bytes()},
            [&](auto& queue) { work::batch_norm_finalize(o, queue); });
  reference::run_step(BatchNormStatistics{0, sums}, n.c.state);
  n.check_vector(sums);
  std::ranges::copy(n.vectors[sums], n.c.state.vectors[sums].begin());
  reference::run_step(step, n.c.state);

  for (const VectorId id : {norm_scale, bias, mean, inverse}) n.check_vector(id);
  CHECK(relative_norm(n.statistics, n.c.state.batch_statistics) < 1e-5);
  narrow.check(n);
}

TEST_CASE("cuda kernels: BatchNorm is applied as by the reference, in all its fusions") {
  const Element element = any_element();
  const int residual = GENERATE(0, 1, 2);  // none, plain, scaled
  const Activation then = any_activation();
  const Shape s = shape_for(then);
  const bool in_place = GENERATE(false, true);
  CAPTURE(element, s.batch, s.channels, residual, name_of(then), in_place);
  Norm n(element, s, true, 3, 2);
  n.fill_vectors();
  const TensorId y = in_place ? 0 : 2;
  const bool scaled = residual == 2;
  const AppliedNorm how{norm_scale,
                        bias,
                        residual ? 1 : no_tensor,
                        scaled ? x_scale : no_vector,
                        scaled ? shift : no_vector,
                        then};
  const BatchNormApplyOperands o{element,
                                 s.pixels(),
                                 n.channels,
                                 n.c[0],
                                 n.c[y],
                                 n.channels,
                                 n.vectors[norm_scale].data(),
                                 n.vectors[bias].data(),
                                 n.c[how.residual],
                                 scaled ? n.vectors[x_scale].data() : nullptr,
                                 scaled ? n.vectors[shift].data() : nullptr,
                                 then};

  n.c.check(BatchNormApply{0, y, how}, {y}, [&](auto& queue) { work::batch_norm_apply(o, queue); });
}

TEST_CASE("cuda kernels: BatchNorm is applied into a slice of a wider tensor") {
  const Element element = any_element();
  const int channels = GENERATE(3, 16), before = GENERATE(5, 8);
  CAPTURE(element, channels, before);
  const Shape s{2, 5, 7, channels}, wide{2, 5, 7, before + channels + 8};
  Norm n(element, s, true, 2, 1);
  n.fill_vectors();
  DeviceTensor all(element, wide.elements());
  all.write(std::vector<double>(wide.elements(), 7));
  std::byte* first = static_cast<std::byte*>(all.data()) + before * bytes_of(element);
  const BatchNormApplyOperands o{element,
                                 s.pixels(),
                                 n.channels,
                                 n.c[0],
                                 first,
                                 std::size_t(wide.channels),
                                 n.vectors[norm_scale].data(),
                                 n.vectors[bias].data(),
                                 nullptr,
                                 nullptr,
                                 nullptr,
                                 Activation::relu};

  run_twice({all.bytes()}, [&](auto& queue) { work::batch_norm_apply(o, queue); });
  reference::run_step(
      BatchNormApply{0, 1, {.scale = norm_scale, .bias = bias, .then = Activation::relu}},
      n.c.state);

  std::vector<double> slice;
  const auto values = all.read();
  for (std::size_t i = 0; i < values.size(); ++i) {
    const int channel = static_cast<int>(i % wide.channels);
    if (channel >= before && channel < before + channels)
      slice.push_back(values[i]);
    else
      REQUIRE(values[i] == 7);
  }
  CHECK(relative_norm(slice, n.c.state[1]) < tolerance(element));
}

TEST_CASE("cuda kernels: BatchNorm's backward agrees with the reference, in all its fusions") {
  const Element element = any_element();
  const Activation then = any_activation();
  const Shape s = shape_for(then);
  const bool with_gamma = sanitized ? then == Activation::relu : GENERATE(false, true);
  const bool masked_by_y = GENERATE(false, true), with_skip = GENERATE(false, true);
  const bool in_place = GENERATE(false, true);
  CAPTURE(element, s.batch, s.channels, with_gamma, name_of(then), masked_by_y, with_skip,
          in_place);
  if (masked_by_y && !facts_of(then).slope_of_output) return;
  enum : TensorId { x, dy, y, skip, g, dx };
  Norm n(element, s, with_gamma, 6, g);
  n.fill_vectors();
  const TensorId written = in_place ? dy : g;
  const BatchNormSums how{x,
                          masked_by_y ? y : no_tensor,
                          with_skip ? skip : no_tensor,
                          written,
                          then,
                          n.used_gamma,
                          n.beta,
                          s.pixels(),
                          norm_scale,
                          bias,
                          mean,
                          inverse,
                          g_scale,
                          x_scale,
                          shift};
  const BatchNormBackwardReduceOperands reduce{element,
                                               s.pixels(),
                                               n.channels,
                                               s.pixels(),
                                               n.c[dy],
                                               n.c[how.skip],
                                               n.c[x],
                                               n.c[how.y],
                                               n.c[written],
                                               then,
                                               n.vectors[norm_scale].data(),
                                               n.vectors[bias].data(),
                                               n.vectors[mean].data(),
                                               n.vectors[inverse].data(),
                                               n.gamma_values(),
                                               with_gamma ? n.gradients.data() : nullptr,
                                               n.gradients.data() + n.channels,
                                               n.vectors[g_scale].data(),
                                               n.vectors[x_scale].data(),
                                               n.vectors[shift].data(),
                                               n.workspace.data()};

  n.c.run_kernel({written}, [&](auto& queue) { work::batch_norm_backward_reduce(reduce, queue); },
                 {bytes_of_values(n.gradients), bytes_of_values(n.vectors[shift])});
  reference::run_step(BatchNormBackwardReduce{dy, how}, n.c.state);
  CHECK(relative_norm(n.c.read(written), n.c.state[written]) < tolerance(element));
  CHECK(relative_norm(n.gradients, n.c.state.gradients) < 1e-4);
  for (const VectorId id : {g_scale, x_scale, shift}) n.check_vector(id, 1e-4);

  const TensorId result = in_place ? written : dx;
  n.c.check(BatchNormBackwardApply{written, x, result, g_scale, x_scale, shift}, {result},
            [&](auto& queue) {
              work::batch_norm_backward_apply(
                  {element, s.pixels(), n.channels, n.c[written], n.c[x], n.c[result],
                   n.vectors[g_scale].data(), n.vectors[x_scale].data(), n.vectors[shift].data()},
                  queue);
            });
}

TEST_CASE("cuda kernels: a reduction that writes no gradient only sums") {
  const Shape s{2, 3, 5, 8};
  Norm n(Element::fp16, s, true, 2, 2);
  n.fill_vectors();
  const auto none = static_cast<void*>(nullptr);
  const BatchNormSums how{0,       no_tensor, no_tensor, no_tensor,  Activation::none,
                          n.gamma, n.beta,    30,        norm_scale, bias,
                          mean,    inverse,   g_scale,   x_scale,    shift};

  run_twice({bytes_of_values(n.gradients)}, [&](auto& queue) {
    work::batch_norm_backward_reduce({Element::fp16,
                                      30,
                                      8,
                                      30,
                                      n.c[1],
                                      none,
                                      n.c[0],
                                      none,
                                      none,
                                      Activation::none,
                                      n.vectors[norm_scale].data(),
                                      n.vectors[bias].data(),
                                      n.vectors[mean].data(),
                                      n.vectors[inverse].data(),
                                      n.gamma_values(),
                                      n.gradients.data(),
                                      n.gradients.data() + 8,
                                      n.vectors[g_scale].data(),
                                      n.vectors[x_scale].data(),
                                      n.vectors[shift].data(),
                                      n.workspace.data()},
                                     queue);
  });
  reference::run_step(BatchNormBackwardReduce{1, how}, n.c.state);

  CHECK(relative_norm(n.gradients, n.c.state.gradients) < 1e-5);
}

TEST_CASE("cuda kernels: BatchNorm in evaluation agrees with the reference") {
  const Element element = any_element();
  const Shape s{2, 5, 3, any_norm_channels()};
  const bool with_gamma = GENERATE(false, true);
  const Activation then = any_activation();
  CAPTURE(element, s.channels, with_gamma, name_of(then));
  Norm n(element, s, with_gamma, 3, 2);
  for (std::size_t i = 0; i < n.statistics.size(); ++i)
    n.c.state.statistics[i] = n.statistics[i] = 0.5f + static_cast<float>(i % 7);
  BatchNormForward step{0, 2, 1, n.used_gamma, n.beta, {0, 2 * n.channels}};
  step.training = false;
  step.then = then;
  Narrow narrow(element, n.channels);

  n.c.check(step, {2}, [&](auto& queue) {
    work::batch_norm_evaluation({n.channels, n.statistics.data(), n.gamma_values(), n.beta_values(),
                                 step.epsilon, n.vectors[norm_scale].data(), n.vectors[bias].data(),
                                 element, narrow.scales.data(), narrow.biases.data()},
                                queue);
    work::batch_norm_apply(
        {element, s.pixels(), n.channels, n.c[0], n.c[2], n.channels, n.vectors[norm_scale].data(),
         n.vectors[bias].data(), n.c[1], nullptr, nullptr, then},
        queue);
  });
  narrow.check(n);
}

TEST_CASE("cuda kernels: scale and bias are copied only where wanted") {
  Norm n(Element::fp16, {1, 1, 1, 3}, true, 1, 1);
  DeviceTensor copy(Element::fp16, 3);
  KernelQueue queue = KernelQueue::one_way();
  BatchNormEvaluationOperands o{3,
                                n.statistics.data(),
                                nullptr,
                                n.beta_values(),
                                1,
                                n.vectors[norm_scale].data(),
                                n.vectors[bias].data()};

  work::batch_norm_evaluation(o, queue);
  o.narrow = Element::fp16;
  o.narrow_bias = copy.data();
  work::batch_norm_evaluation(o, queue);

  CHECK(n.vectors[norm_scale] == std::vector<float>(3, 1));
  CHECK(copy.read()[2] == Approx(n.beta_values()[2]).epsilon(1e-3));
}

TEST_CASE("cuda kernels: statistics of many pixels keep their precision") {
  const Shape s{4, 56, 56, 64};  // more partial sums than the second kernel has rows
  Norm n(Element::fp32, s, true, 1, 1, [](double v) { return v + 3; });

  KernelQueue queue = KernelQueue::one_way();
  work::batch_norm_statistics(Element::fp32, s.pixels(), 64, n.c[0], 0, n.vectors[sums].data(),
                              n.workspace.data(), queue);
  reference::run_step(BatchNormStatistics{0, sums}, n.c.state);

  n.check_vector(sums, 1e-6);
}
