#pragma once
#include <vector>

#include "compute/cuda/engines/operation_graph.hpp"

namespace ringtrain::host_gpu {

/// A tensor in fp32, NHWC; weights are out x height x width x in.
struct Field {
  compute::cuda::OperationGraph::Extents
      extents;  ///< N, C, H, W; of weights out, in, height, width
  std::vector<float> at;

  std::size_t batch() const { return static_cast<std::size_t>(extents[0]); }
  std::size_t channels() const { return static_cast<std::size_t>(extents[1]); }
  int height() const { return static_cast<int>(extents[2]); }
  int width() const { return static_cast<int>(extents[3]); }
  /// Where the channels of a pixel begin.
  float* pixel(std::size_t n, int row, int column) {
    return &at[((n * height() + row) * width() + column) * channels()];
  }
  const float* pixel(std::size_t n, int row, int column) const {
    return const_cast<Field*>(this)->pixel(n, row, column);
  }
};

/// y = f(a, b), where b, and a, may be one number a channel.
template <class F>
void pointwise(const Field& a, const Field& b, Field& y, F f) {
  const auto value = [&](const Field& x, std::size_t i) {
    return x.at[x.at.size() == y.at.size() ? i : i % x.at.size()];
  };
  for (std::size_t i = 0; i < y.at.size(); ++i) y.at[i] = f(value(a, i), value(b, i));
}

void convolution(const compute::Window& window, const Field& x, const Field& w, Field& y);
void input_gradient(const compute::Window& window, const Field& dy, const Field& w, Field& dx);
void weight_gradient(const compute::Window& window, const Field& dy, const Field& x, Field& dw);

void statistics(const Field& x, Field& sum, Field& squares);

struct BatchNormInputs {
  const Field &dy, &x, &mean, &inverse_deviation, &gamma;
};
struct BatchNormResults {
  Field &dgamma, &dbeta, &g_scale, &x_scale, &shift;
};
/// OperationGraph::batch_norm_sums, summed in double.
void batch_norm_sums(const BatchNormInputs& in, const BatchNormResults& out);

}  // namespace ringtrain::host_gpu
