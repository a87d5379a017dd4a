#pragma once
#include <algorithm>
#include <cmath>

#include "compute/onednn/kernels/batch_norm/kernels.hpp"
#include "compute/onednn/plan.hpp"

namespace ringtrain::compute::onednn {

/// What one call of a kernel goes over.
struct Piece {
  std::size_t image, block, first;  // block and pixel
  Extent extent;
  double* sums;  // two for each channel

  template <class T>
  Pixels<T> of(const Tensor& t) const {
    return t.run<T>(image, block, first);
  }
};

/// Of one channel: pixels, their mean, and the sum of their squared distances to it.
struct Sample {
  double count = 0, mean = 0, squares = 0;
};

/// One BatchNorm's sizes, and the walk over its pieces: all channels of some pixels where they are
/// last, else all pixels of one block.
struct Geometry {
  Geometry(const Tensor& x, Planner& planner)
      : x(x),
        channels(x.shape.channels),
        threads(planner.threads()),
        pixels(x.channels_last
                   ? std::max<std::size_t>(chunk_pixels, most_elements / x.padded_channels())
                   : x.pixels()),
        runs((x.pixels() + pixels - 1) / pixels),
        tile(x.channels_last ? tile_of(x) : chunk_pixels),
        sums(planner.scratch(x.shape.batch * runs * 2 * x.padded_channels() * sizeof(double))),
        work(planner.scratch(threads * work_of_thread() * sizeof(float))) {}

  /// Calls f for every piece.
  template <class F>
  void for_each_piece(const Frame& frame, const F& f) const {
    const std::size_t all = x.blocks(), together = x.channels_last ? all : 1;
    for_each_item(threads, x.shape.batch * runs * all / together, [&](std::size_t item) {
      const std::size_t first_block = item * together, run = first_block / all,
                        block = first_block % all, first = run % runs * pixels;
      const Extent extent{std::min(pixels, x.pixels() - first), together, block * x.block, tile,
                          work.in(frame) + this_thread() * work_of_thread()};
      f(Piece{run / runs, block, first, extent,
              sums.in<double>(frame) + first_block * 2 * x.block});
    });
  }
  /// The two sums of one channel: f(pixels, first, second) for each of its pieces in turn.
  template <class F>
  void for_each_sum(const Frame& frame, std::size_t channel, const F& f) const {
    const double* piece = sums.in<double>(frame) + channel / x.block * 2 * x.block;
    for (int n = 0; n < x.shape.batch; ++n)
      for (std::size_t first = 0; first < x.pixels(); first += pixels) {
        f(std::min(pixels, x.pixels() - first), piece[channel % x.block],
          piece[x.block + channel % x.block]);
        piece += std::size_t(2) * x.padded_channels();
      }
  }
  /// The batch's statistics of one channel, from the moments of its pieces.
  Sample sample(const Frame& frame, std::size_t c) const {
    Sample s;
    for_each_sum(frame, c, [&](std::size_t pixels, double mean, double squares) {
      const double n = static_cast<double>(pixels), delta = mean - s.mean;
      s.squares += squares + delta * delta * s.count * n / (s.count + n);
      s.mean += delta * n / (s.count + n);
      s.count += n;
    });
    return s;
  }

  Tensor x;
  int channels, threads;
  std::size_t pixels, runs;  // of a piece, and pieces of a block of an image
  std::size_t tile;          // see Extent
  Scratch sums, work;

 private:
  static constexpr std::size_t most_elements = 1 << 18;  // of a piece, for which it is worth it
  // Wide pixels one after the other: the next memory is fetched ahead only where it is read in
  // order. Those of some lines, whose numbers of channels would be loaded for each, a few together.
  static std::size_t tile_of(const Tensor& x) {
    const std::size_t bytes = x.padded_channels() * bytes_of(x.element);
    return bytes >= 512 ? 1 : (bytes >= 256 ? 1024 : 2048) / bytes;
  }
  std::size_t work_of_thread() const {
    return std::size_t(2) * x.block * (x.channels_last ? x.blocks() : 1);
  }
};

/// Without data where there is none.
inline Tensor tensor_or_none(TensorId id, const Planner& planner) {
  return id == no_tensor ? Tensor{} : planner.tensor(id);
}

/// What a BatchNorm makes of a channel's statistics. `Step` has gamma, beta, statistics, epsilon
/// and unbiased.
struct ChannelNorm {
  template <class Step>
  ChannelNorm(const Moments& moments, const Step& step, const Planner& planner, View statistics)
      : moments(moments),
        gamma(planner.parameters(step.gamma)),
        beta(planner.parameters(step.beta)),
        statistics(statistics.slice(step.statistics).data()),
        channels(step.beta.count),
        epsilon(step.epsilon),
        unbiased(step.unbiased) {}

  void publish(std::size_t c, const Sample& s) const {
    const double degrees = unbiased && s.count > 1 ? s.count - 1 : s.count;
    statistics[c] = static_cast<float>(s.mean);
    statistics[channels + c] = static_cast<float>(s.squares / degrees);
    set(c, s.mean, s.squares / s.count);
  }

  void set(std::size_t c, double mean, double variance) const {
    const double inverse = 1 / std::sqrt(variance + epsilon);
    const double scale = gamma ? gamma[c] * inverse : inverse;
    moments.mean[c] = static_cast<float>(mean);
    moments.inverse_deviation[c] = static_cast<float>(inverse);
    moments.scale[c] = static_cast<float>(scale);
    // The shift takes what rounding the mean to a float leaves over.
    moments.shift[c] = static_cast<float>(beta[c] - (mean - moments.mean[c]) * scale);
  }

  Moments moments;
  const float *gamma, *beta;
  float* statistics;
  std::size_t channels;
  float epsilon;
  bool unbiased;
};

/// What a BatchNorm makes of a channel's sums of g and of g * (x - mean).
struct ChannelGradient {
  /// Also the mean of g, and what InputGradient calls slope.
  void write(std::size_t c, double sum, double dot, double pixels, float* mean_g,
             float* slope) const {
    const double inverse = moments.inverse_deviation[c];
    dbeta[c] = static_cast<float>(sum);
    if (dgamma) dgamma[c] = static_cast<float>(dot * inverse);
    mean_g[c] = static_cast<float>(sum / pixels);
    slope[c] = static_cast<float>(dot * inverse * inverse / pixels);
  }

  Moments moments;
  float *dgamma, *dbeta;
};

}  // namespace ringtrain::compute::onednn
