#include <algorithm>
#include <cmath>

#include "compute/onednn/batch_norm_kernels.hpp"
#include "compute/onednn/parallel.hpp"
#include "compute/onednn/plan.hpp"

namespace ringtrain::onednn {
namespace {

// One BatchNorm's sizes, and the walk over its planes.
struct Geometry {
  Geometry(const Tensor& x, Planner& planner)
      : x(x),
        channels(x.shape.channels),
        threads(planner.threads()),
        sums(planner.scratch(x.planes() * 2 * x.block * sizeof(double))) {}

  // Calls f(plane, first channel, the plane's sums) for every plane.
  template <class F>
  void for_each_plane(const Frame& frame, const F& f) const {
    double* all = sums.in<double>(frame);
    for_each_item(threads, x.planes(), [&](std::size_t plane) {
      f(plane, plane % x.blocks() * x.block, all + plane * 2 * x.block);
    });
  }
  // The two sums of one channel over the images: f(first, second) for each image in turn.
  template <class F>
  void for_each_image(const Frame& frame, std::size_t channel, const F& f) const {
    const double* plane = sums.in<double>(frame) + channel / x.block * 2 * x.block;
    for (int n = 0; n < x.shape.batch; ++n, plane += std::size_t(x.blocks()) * 2 * x.block)
      f(plane[channel % x.block], plane[x.block + channel % x.block]);
  }

  Tensor x;
  int channels, threads;
  Scratch sums;
};

// Without data where there is none.
Tensor tensor_or_none(TensorId id, const Planner& planner) {
  return id == no_tensor ? Tensor{} : planner.tensor(id);
}

// Two BatchNorms may read one tensor; each has a beta of its own.
TensorId name_of_norm(const auto& step) { return static_cast<TensorId>(step.beta.first); }

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
        plane_moments_(pick<PlaneMoments>(planner.isa())),
        apply_(pick<Apply>(planner.isa())) {}

  void operator()(const Frame& frame) const {
    const Tensor& x = geometry_.x;
    if (step_.training)
      geometry_.for_each_plane(frame, [&](std::size_t plane, std::size_t, double* sums) {
        plane_moments_(x.plane_at(plane), x.pixels(), sums);
      });
    if (step_.all_ranks) sum_moments(frame);
    for_each_item(geometry_.threads, geometry_.channels, [&](std::size_t c) {
      if (!step_.training)
        set(c, statistics_[c], statistics_[geometry_.channels + c]);
      else
        publish(c, step_.all_ranks ? of_ranks(frame, c) : of_batch(frame, c));
    });
    geometry_.for_each_plane(frame, [&](std::size_t plane, std::size_t channel, double*) {
      apply_(x.plane_at(plane), residual_.plane_at(plane), y_.plane_at(plane), x.pixels(), moments_,
             channel, step_.relu);
    });
  }

 private:
  // Of one channel: pixels, their mean, and the sum of their squared distances to it.
  struct Sample {
    double count = 0, mean = 0, squares = 0;
  };

  // The batch's from those of its images.
  Sample of_batch(const Frame& frame, std::size_t c) const {
    const double n = static_cast<double>(geometry_.x.pixels());
    Sample s;
    geometry_.for_each_image(frame, c, [&](double image_mean, double image_squares) {
      const double delta = image_mean - s.mean;
      s.squares += image_squares + delta * delta * s.count * n / (s.count + n);
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
  decltype(pick<PlaneMoments>(Isa{})) plane_moments_;
  decltype(pick<Apply>(Isa{})) apply_;
};

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
        plane_sums_(pick<PlaneSums>(planner.isa())),
        input_gradient_(pick<InputGradient>(planner.isa())) {}

  void operator()(const Frame& frame) const {
    const std::size_t pixels = geometry_.x.pixels();
    float *mean_g = averages_.in(frame), *slope = mean_g + moments_.channels;
    geometry_.for_each_plane(frame, [&](std::size_t plane, std::size_t channel, double* sums) {
      plane_sums_(upstream_.at(plane), dresidual_.plane_at(plane), pixels, moments_, channel, sums);
    });
    std::fill_n(mean_g, 2 * moments_.channels, 0.f);
    for_each_item(geometry_.threads, geometry_.channels,
                  [&](std::size_t c) { combine(frame, c, mean_g, slope); });
    if (ranks_count_) average_over_ranks(frame, mean_g);
    // Where g was written, it is read back: one tensor instead of up to three.
    const UpstreamTensors u =
        dresidual_.data ? UpstreamTensors{upstream_.x, {}, dresidual_, {}, false} : upstream_;
    geometry_.for_each_plane(frame, [&](std::size_t plane, std::size_t channel, double*) {
      input_gradient_(u.at(plane), dx_.plane_at(plane), pixels, moments_, channel, mean_g, slope);
    });
  }

 private:
  // Upstream, of all planes.
  struct UpstreamTensors {
    Tensor x, y, dy, dy2;
    bool masked;
    Upstream at(std::size_t plane) const {
      return {x.plane_at(plane), y.plane_at(plane), dy.plane_at(plane), dy2.plane_at(plane),
              masked};
    }
  };

  void combine(const Frame& frame, std::size_t c, float* mean_g, float* slope) const {
    double sum = 0, dot = 0;
    geometry_.for_each_image(frame, c, [&](double g, double product) {
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
  decltype(pick<PlaneSums>(Isa{})) plane_sums_;
  decltype(pick<InputGradient>(Isa{})) input_gradient_;
};

}  // namespace

Action plan(const BatchNormForward& step, Planner& planner) { return Forward(step, planner); }

Action plan(const BatchNormBackward& step, Planner& planner) { return Backward(step, planner); }

}  // namespace ringtrain::onednn
