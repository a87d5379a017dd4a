#pragma once
#include "compute/onednn/kernels/batch_norm/geometry.hpp"

namespace ringtrain::compute::onednn {

// What a BatchNorm in pieces keeps in memory behind the names of its vectors. `x` is its input.

/// Moments, behind the name of `scale`: they take the mean off before they scale, so that numbers
/// far from zero lose nothing.
Moments named_moments(VectorId scale, const Tensor& x, Planner& planner);

/// Two sums for each padded channel, of x and then of its squares, behind the name of `sums`.
double* named_sums(VectorId sums, const Tensor& x, Planner& planner);

/// What BatchNormBackwardApply reads, behind the name of `g_scale`.
struct NamedGradient {
  NamedGradient(VectorId g_scale, const Tensor& x, Planner& planner);

  Moments moments;  // a copy
  float *mean_g, *slope;
};

/// Takes a channel's sums of g and of g * (x - mean), wherever they were made.
class GradientSums {
 public:
  GradientSums(const BatchNormSums& how, Planner& planner);

  const Moments& moments() const { return of_batch_.moments; }
  /// Of all channels: sums(channel) gives both.
  template <class F>
  void take(int threads, const F& sums) const {
    std::copy_n(of_batch_.moments.mean, 4 * of_batch_.moments.channels, named_.moments.mean);
    for_each_item(threads, channels_, [&](std::size_t c) {
      const auto [sum, dot] = sums(c);
      of_batch_.write(c, sum, dot, count_, named_.mean_g, named_.slope);
    });
  }

 private:
  ChannelGradient of_batch_;
  NamedGradient named_;
  std::size_t channels_;
  double count_;
};

}  // namespace ringtrain::compute::onednn
