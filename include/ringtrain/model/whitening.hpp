#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace ringtrain::model {

/// Filters of a first layer that make its results uncorrelated and of variance 1: the eigenvectors
/// of the covariance of an image's windows, largest first, over sqrt(eigenvalue + epsilon), and
/// their negatives behind them (Page 2019; Jordan 2024, arXiv:2404.00498). Sums are of integers:
/// the same windows give the same bits in any order.
class WhiteningFilters {
 public:
  /// Of windows of height x width x channels values.
  WhiteningFilters(int height, int width, int channels);

  /// Counts all windows of an image, whose 8-bit values are interleaved.
  void add(std::span<const std::uint8_t> image, int image_height, int image_width);
  /// For images that are (v / 255 - mean) / deviation, by channel: filters x window. Twice as many
  /// filters as a window has values. Throws Error (data) where no window was counted.
  std::vector<double> filters(std::span<const float> mean, std::span<const float> deviation,
                              double epsilon) const;

 private:
  std::size_t values() const { return sums_.size(); }

  const int height_, width_, channels_;
  std::uint64_t windows_ = 0;
  std::vector<std::uint64_t> sums_, products_;  // products: the lower triangle, row after row
  std::vector<std::uint32_t> window_;
};

}  // namespace ringtrain::model
