#pragma once
#include "support/gradient_check.hpp"

// A small image, one or two BatchNorms of it with their vectors, and the weights of a convolution.
namespace ringtrain::compute::reference {

inline constexpr int channels = 3;
inline const compute::Shape image{2, 4, 5, channels};
inline const compute::Window window{3, 3, 1, 1, 1, 1, 1, 1};

/// The parameters: gamma, beta, a convolution's weights.
inline const compute::ParameterRange gamma_range{0, channels}, beta{channels, channels},
    w{6, 4 * 9 * channels};

/// The vectors of one BatchNorm; those of the next follow.
enum : VectorId { sums, scale, bias, mean, inverse, g_scale, x_scale, shift, vectors_of_one };

inline compute::reference::State state_of(std::vector<compute::Shape> tensors) {
  compute::Schedule schedule;
  schedule.tensors = std::move(tensors);
  schedule.parameters = w.end();
  schedule.statistics = 2 * channels;
  for (int norm = 0; norm < 2; ++norm) {
    schedule.vectors.push_back(2 * channels);
    schedule.vectors.insert(schedule.vectors.end(), vectors_of_one - 1, channels);
  }
  compute::reference::State s(schedule, 1);
  fill_normal(s.parameters, 3);
  for (std::size_t id = 0; id < s.tensors.size(); ++id) fill_normal(s.tensors[id], 10 + id);
  return s;
}

inline compute::BatchNormFinalize finalize(std::optional<compute::ParameterRange> gamma,
                                           compute::VectorId first = 0) {
  return {.sums = first + sums,
          .count = image.pixels(),
          .gamma = gamma,
          .beta = beta,
          .statistics = {0, 2 * channels},
          .scale = first + scale,
          .bias = first + bias,
          .mean = first + mean,
          .inverse_deviation = first + inverse};
}

inline compute::BatchNormSums sums_after(compute::TensorId x, compute::TensorId y,
                                         compute::TensorId skip, compute::TensorId g,
                                         compute::Activation then,
                                         std::optional<compute::ParameterRange> gamma) {
  return {x,     y,    skip, g,       then,    gamma,   beta, image.pixels(),
          scale, bias, mean, inverse, g_scale, x_scale, shift};
}

inline void check_equal(const std::vector<double>& actual, const std::vector<double>& expected) {
  REQUIRE(actual.size() == expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    CAPTURE(i);
    REQUIRE(actual[i] == Approx(expected[i]).epsilon(1e-10).margin(1e-12));
  }
}

/// The tensors that `step` names, in its order.
inline std::vector<std::pair<compute::TensorId, compute::Access>> touched(
    const compute::Step& step) {
  std::vector<std::pair<compute::TensorId, compute::Access>> all;
  compute::for_each_tensor(
      step, [&](compute::TensorId id, compute::Access access) { all.emplace_back(id, access); });
  return all;
}
using Touched = std::vector<std::pair<compute::TensorId, compute::Access>>;

}  // namespace ringtrain::compute::reference
