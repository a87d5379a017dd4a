#include "ringtrain/model/whitening.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "ringtrain/base/error.hpp"

namespace ringtrain::model {
namespace {

struct Symmetric {
  std::size_t size;
  std::vector<double> values = std::vector<double>(size * size);
  double& at(std::size_t row, std::size_t column) { return values[row * size + column]; }
};

// Turns two rows, and two columns of a symmetric matrix, so that (p, q) becomes 0.
void rotate(Symmetric& m, Symmetric& vectors, std::size_t p, std::size_t q) {
  const double theta = (m.at(q, q) - m.at(p, p)) / (2 * m.at(p, q));
  const double t = std::copysign(1 / (std::abs(theta) + std::sqrt(theta * theta + 1)), theta);
  const double cosine = 1 / std::sqrt(t * t + 1), sine = t * cosine;
  const auto turn = [&](double& a, double& b) {
    const double of_p = cosine * a - sine * b, of_q = sine * a + cosine * b;
    a = of_p;
    b = of_q;
  };
  for (std::size_t k = 0; k < m.size; ++k) turn(m.at(k, p), m.at(k, q));
  for (std::size_t k = 0; k < m.size; ++k) turn(m.at(p, k), m.at(q, k));
  for (std::size_t k = 0; k < m.size; ++k) turn(vectors.at(p, k), vectors.at(q, k));
}

// Jacobi's method: eigenvalues come to the diagonal of `m`, their vectors into the rows returned.
Symmetric diagonalise(Symmetric& m) {
  Symmetric vectors{m.size};
  for (std::size_t k = 0; k < m.size; ++k) vectors.at(k, k) = 1;
  constexpr int most_sweeps = 100;
  for (int sweep = 0; sweep < most_sweeps; ++sweep) {
    double outside = 0, inside = 0;
    for (std::size_t p = 0; p < m.size; ++p) {
      inside += m.at(p, p) * m.at(p, p);
      for (std::size_t q = p + 1; q < m.size; ++q) outside += m.at(p, q) * m.at(p, q);
    }
    if (outside <= 1e-30 * inside) break;
    for (std::size_t p = 0; p < m.size; ++p)
      for (std::size_t q = p + 1; q < m.size; ++q)
        if (m.at(p, q) != 0) rotate(m, vectors, p, q);
  }
  return vectors;
}

}  // namespace

WhiteningFilters::WhiteningFilters(int height, int width, int channels)
    : height_(height),
      width_(width),
      channels_(channels),
      sums_(std::size_t(height) * width * channels),
      products_(values() * (values() + 1) / 2),
      window_(values()) {}

void WhiteningFilters::add(std::span<const std::uint8_t> image, int image_height, int image_width) {
  const std::size_t row_bytes = std::size_t(image_width) * channels_;
  const std::size_t row_values = std::size_t(width_) * channels_;
  expects(image.size() == row_bytes * image_height, "WhiteningFilters: an image of these extents");
  for (int top = 0; top + height_ <= image_height; ++top)
    for (int left = 0; left + width_ <= image_width; ++left, ++windows_) {
      for (int row = 0; row < height_; ++row)
        std::ranges::copy(
            image.subspan((top + row) * row_bytes + std::size_t(left) * channels_, row_values),
            window_.begin() + row * row_values);
      for (std::size_t i = 0, at = 0; i < values(); ++i) {
        sums_[i] += window_[i];
        for (std::size_t j = 0; j <= i; ++j) products_[at++] += window_[i] * window_[j];
      }
    }
}

std::vector<double> WhiteningFilters::filters(std::span<const float> mean,
                                              std::span<const float> deviation,
                                              double epsilon) const {
  if (windows_ == 0)
    throw Error(Exit::data, "init=whitening", "no image is as large as a window of the filters");
  const auto factor = [&](std::size_t i) { return 1 / (255.0 * deviation[i % channels_]); };
  const auto shift = [&](std::size_t i) {
    return -double(mean[i % channels_]) / deviation[i % channels_];
  };
  const auto windows = double(windows_);
  Symmetric covariance{values()};
  for (std::size_t i = 0, at = 0; i < values(); ++i)
    for (std::size_t j = 0; j <= i; ++j) {
      const double a = factor(i), b = shift(i), c = factor(j), d = shift(j);
      covariance.at(i, j) = covariance.at(j, i) =
          (a * c * double(products_[at++]) + a * d * double(sums_[i]) + b * c * double(sums_[j])) /
              windows +
          b * d;
    }
  Symmetric vectors = diagonalise(covariance);
  std::vector<std::size_t> order(values());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater(),
                           [&](std::size_t k) { return covariance.at(k, k); });
  std::vector<double> filters;
  for (const double sign : {1, -1})
    for (const std::size_t k : order)
      for (std::size_t i = 0; i < values(); ++i)
        filters.push_back(sign * vectors.at(k, i) /
                          std::sqrt(std::max(covariance.at(k, k), 0.0) + epsilon));
  return filters;
}

}  // namespace ringtrain::model
