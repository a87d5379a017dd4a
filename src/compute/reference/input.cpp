#include <algorithm>
#include <cmath>
#include <numeric>

#include "compute/color_jitter.hpp"
#include "compute/reference/state.hpp"

namespace ringtrain::compute::reference {
namespace {

void erase(const Erased& e, const Shape& shape, double* image) {
  for (int row = e.top; row < e.top + e.height; ++row)
    std::fill_n(image + (std::size_t(row) * shape.width + e.left) * shape.channels,
                std::size_t(e.width) * shape.channels, e.value);
}

}  // namespace

template <>
void run(const Input& step, State& s) {
  const Shape& shape = s.shape(step.y);
  const std::size_t features = shape.features();
  for (int n = 0; n < shape.batch; ++n) {
    const std::uint8_t* pixels = &s.batch->images[n * features];
    double* y = &s[step.y][n * features];
    std::copy_n(pixels, features, y);
    if (step.jitter)
      apply_jitter(s.batch->samples[n].jitter, std::span(y, features), shape.channels);
    if (step.clip) std::transform(y, y + features, y, clipped<double>);
    if (step.normalisation == Normalisation::standardise_image) {
      const double mean = std::accumulate(y, y + features, 0.0) / double(features);
      double squares = 0;
      for (std::size_t i = 0; i < features; ++i) squares += (y[i] - mean) * (y[i] - mean);
      const double deviation = std::sqrt(squares / double(features));
      for (std::size_t i = 0; i < features; ++i)
        y[i] = (y[i] - mean) / std::max(deviation, 1 / std::sqrt(double(features)));
    } else {
      for (std::size_t i = 0; i < features; ++i) {
        const std::size_t c = i % shape.channels;
        y[i] = (y[i] / 255 - step.mean[c]) / step.deviation[c];
      }
    }
    if (step.erase) erase(s.batch->samples[n].erased, shape, y);
  }
}

}  // namespace ringtrain::compute::reference
