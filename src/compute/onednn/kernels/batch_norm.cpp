#include <algorithm>
#include <cmath>

#include "compute/onednn/kernels/batch_norm_kernels.hpp"
#include "compute/onednn/plan.hpp"

namespace ringtrain::compute::onednn {
namespace {

// What one call of a kernel goes over.
struct Piece {
  std::size_t image, block, first;  // block and pixel
  Extent extent;
  double* sums;  // two for each channel

  template <class T>
  Pixels<T> of(const Tensor& t) const {
    return t.run<T>(image, block, first);
  }
};

// One BatchNorm's sizes, and the walk over its pieces: all channels of some pixels where they are
// last, else all pixels of one block.
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

  // Calls f for every piece.
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
  // The two sums of one channel: f(pixels, first, second) for each of its pieces in turn.
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

// Without data where there is none.
Tensor tensor_or_none(TensorId id, const Planner& planner) {
  return id == no_tensor ? Tensor{} : planner.tensor(id);
}

// Two BatchNorms may read one tensor; each has a beta of its own.
TensorId name_of_norm(const auto& step) { return static_cast<TensorId>(step.beta.first); }

template <class T>
class Forward {
 public:
  Forward(const BatchNormForward& step, Planner& planner)
      : step_(step),
        geometry_(planner.tensor(step.x), planner),
        moments_(geometry_.x,
                 planner.keep(Kept::moments, name_of_norm(step), Moments::size(geometry_.x))),
        residual_(tensor_or_none(step.residual, planner)),
        gamma_(planner.parameters(step.gamma)),
        beta_(planner.parameters(step.beta)),
        y_(planner.tensor(step.y)),
        statistics_(
            (step.training ? planner.buffers().batch_statistics : planner.buffers().statistics)
                .slice(step.statistics)
                .data()),
        origin_(step.all_ranks ? planner.buffers().statistics.slice(step.statistics).data()
                               : nullptr),
        count_(planner.keep(Kept::count, name_of_norm(step), 1)),
        ranks_(planner.scratch((2 * geometry_.channels + 1) * sizeof(float))),
        pixel_moments_(pick<PixelMoments, T>(planner.isa())),
        apply_(pick<Apply, T>(planner.isa())) {}

  void operator()(const Frame& frame) const {
    const Tensor& x = geometry_.x;
    if (step_.training)
      geometry_.for_each_piece(frame, [&](const Piece& piece) {
        pixel_moments_(piece.of<T>(x), piece.extent, piece.sums);
      });
    if (step_.all_ranks) sum_moments(frame);
    for_each_item(geometry_.threads, geometry_.channels, [&](std::size_t c) {
      if (!step_.training)
        set(c, statistics_[c], statistics_[geometry_.channels + c]);
      else
        publish(c, step_.all_ranks ? of_ranks(frame, c) : of_batch(frame, c));
    });
    geometry_.for_each_piece(frame, [&](const Piece& piece) {
      apply_(piece.of<T>(x), piece.of<T>(residual_), piece.of<T>(y_), moments_, piece.extent,
             step_.relu);
    });
  }

 private:
  // Of one channel: pixels, their mean, and the sum of their squared distances to it.
  struct Sample {
    double count = 0, mean = 0, squares = 0;
  };

  // The batch's from those of its pieces.
  Sample of_batch(const Frame& frame, std::size_t c) const {
    Sample s;
    geometry_.for_each_sum(frame, c, [&](std::size_t pixels, double mean, double squares) {
      const double n = static_cast<double>(pixels), delta = mean - s.mean;
      s.squares += squares + delta * delta * s.count * n / (s.count + n);
      s.mean += delta * n / (s.count + n);
      s.count += n;
    });
    return s;
  }

  // Sums over all ranks, of distances to the running mean: it is the same on all of them, and sums
  // of squares lose what is far from zero.
  void sum_moments(const Frame& frame) const {
    const std::size_t channels = geometry_.channels;
    float* sums = ranks_.in(frame);
    for_each_item(geometry_.threads, channels, [&](std::size_t c) {
      const Sample s = of_batch(frame, c);
      const double d = s.mean - origin_[c];
      sums[c] = static_cast<float>(s.count * d);
      sums[channels + c] = static_cast<float>(s.squares + s.count * d * d);
    });
    sums[2 * channels] = static_cast<float>(geometry_.x.shape.pixels());
    frame.sum_over_ranks({sums, 2 * channels + 1});
    *count_ = sums[2 * channels];
  }

  Sample of_ranks(const Frame& frame, std::size_t c) const {
    const float* sums = ranks_.in(frame);
    const double count = *count_, d = sums[c] / count;
    const double squares = sums[geometry_.channels + c] - count * d * d;
    return {count, origin_[c] + d, std::max(squares, 0.0)};
  }

  void publish(std::size_t c, const Sample& s) const {
    const double degrees = step_.unbiased && s.count > 1 ? s.count - 1 : s.count;
    statistics_[c] = static_cast<float>(s.mean);
    statistics_[geometry_.channels + c] = static_cast<float>(s.squares / degrees);
    set(c, s.mean, s.squares / s.count);
  }

  void set(std::size_t c, double mean, double variance) const {
    const double inverse = 1 / std::sqrt(variance + step_.epsilon);
    const double scale = gamma_ ? gamma_[c] * inverse : inverse;
    moments_.mean[c] = static_cast<float>(mean);
    moments_.inverse_deviation[c] = static_cast<float>(inverse);
    moments_.scale[c] = static_cast<float>(scale);
    // The shift takes what rounding the mean to a float leaves over.
    moments_.shift[c] = static_cast<float>(beta_[c] - (mean - moments_.mean[c]) * scale);
  }

  BatchNormForward step_;
  Geometry geometry_;
  Moments moments_;
  Tensor residual_;
  const float *gamma_, *beta_;
  Tensor y_;
  float* statistics_;
  const float* origin_;  // for sums over ranks
  float* count_;
  Scratch ranks_;
  decltype(pick<PixelMoments, T>(Isa{})) pixel_moments_;
  decltype(pick<Apply, T>(Isa{})) apply_;
};

template <class T>
class Backward {
 public:
  Backward(const BatchNormBackward& step, Planner& planner)
      : geometry_(planner.tensor(step.x), planner),
        moments_(geometry_.x, planner.kept(Kept::moments, name_of_norm(step))),
        upstream_{geometry_.x, tensor_or_none(step.y, planner), planner.tensor(step.dy),
                  tensor_or_none(step.dy2, planner), step.relu},
        dx_(planner.tensor(step.dx)),
        dresidual_(tensor_or_none(step.dresidual, planner)),
        dgamma_(planner.gradients(step.gamma)),
        dbeta_(planner.gradients(step.beta)),
        ranks_count_(step.all_ranks ? planner.kept(Kept::count, name_of_norm(step)) : nullptr),
        averages_(planner.scratch(2 * moments_.channels * sizeof(float))),
        pixel_sums_(pick<PixelSums, T>(planner.isa())),
        input_gradient_(pick<InputGradient, T>(planner.isa())) {}

  void operator()(const Frame& frame) const {
    float *mean_g = averages_.in(frame), *slope = mean_g + moments_.channels;
    geometry_.for_each_piece(frame, [&](const Piece& piece) {
      pixel_sums_(upstream_.of(piece), piece.of<T>(dresidual_), moments_, piece.extent, piece.sums);
    });
    std::fill_n(mean_g, 2 * moments_.channels, 0.f);
    for_each_item(geometry_.threads, geometry_.channels,
                  [&](std::size_t c) { combine(frame, c, mean_g, slope); });
    if (ranks_count_) average_over_ranks(frame, mean_g);
    // Where g was written, it is read back: one tensor instead of up to three.
    const UpstreamTensors u =
        dresidual_.data ? UpstreamTensors{upstream_.x, {}, dresidual_, {}, false} : upstream_;
    geometry_.for_each_piece(frame, [&](const Piece& piece) {
      input_gradient_(u.of(piece), piece.of<T>(dx_), moments_, piece.extent, mean_g, slope);
    });
  }

 private:
  // Upstream, of all pieces.
  struct UpstreamTensors {
    Tensor x, y, dy, dy2;
    bool masked;
    Upstream<T> of(const Piece& piece) const {
      return {piece.of<T>(x), piece.of<T>(y), piece.of<T>(dy), piece.of<T>(dy2), masked};
    }
  };

  void combine(const Frame& frame, std::size_t c, float* mean_g, float* slope) const {
    double sum = 0, dot = 0;
    geometry_.for_each_sum(frame, c, [&](std::size_t, double g, double product) {
      sum += g;
      dot += product;
    });
    const double inverse = moments_.inverse_deviation[c];
    const double pixels = ranks_count_ ? 1 : static_cast<double>(geometry_.x.shape.pixels());
    dbeta_[c] = static_cast<float>(sum);
    if (dgamma_) dgamma_[c] = static_cast<float>(dot * inverse);
    mean_g[c] = static_cast<float>(sum / pixels);
    slope[c] = static_cast<float>(dot * inverse * inverse / pixels);
  }

  // What combine() left are sums then.
  void average_over_ranks(const Frame& frame, float* averages) const {
    frame.sum_over_ranks({averages, 2 * moments_.channels});
    for (std::size_t i = 0; i < 2 * moments_.channels; ++i) averages[i] /= *ranks_count_;
  }

  Geometry geometry_;
  Moments moments_;
  UpstreamTensors upstream_;
  Tensor dx_, dresidual_;
  float *dgamma_, *dbeta_;
  const float* ranks_count_;  // pixels of all ranks; null: this rank's batch is all there is
  Scratch averages_;
  decltype(pick<PixelSums, T>(Isa{})) pixel_sums_;
  decltype(pick<InputGradient, T>(Isa{})) input_gradient_;
};

}  // namespace

Action plan(const BatchNormForward& step, Planner& planner) {
  return with_type(planner.tensor(step.x).element,
                   [&]<class T>(T) -> Action { return Forward<T>(step, planner); });
}

Action plan(const BatchNormBackward& step, Planner& planner) {
  return with_type(planner.tensor(step.x).element,
                   [&]<class T>(T) -> Action { return Backward<T>(step, planner); });
}

}  // namespace ringtrain::compute::onednn
