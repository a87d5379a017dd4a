#include "compute/onednn/kernels/batch_norm/geometry.hpp"

namespace ringtrain::compute::onednn {
namespace {

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
        y_(planner.tensor(step.y)),
        norm_(moments_, step, planner,
              step.training ? planner.buffers().batch_statistics : planner.buffers().statistics),
        origin_(step.all_ranks ? planner.buffers().statistics.slice(step.statistics).data()
                               : nullptr),
        count_(planner.keep(Kept::count, name_of_norm(step), 1)),
        ranks_(planner.scratch((2 * geometry_.channels + 1) * sizeof(float))),
        pixel_moments_(pick<PixelMoments, T>(planner.isa())),
        apply_(pick_apply<T>(step.then, planner.isa())) {}

  void operator()(const Frame& frame) const {
    const Tensor& x = geometry_.x;
    if (step_.training)
      geometry_.for_each_piece(frame, [&](const Piece& piece) {
        pixel_moments_(piece.of<T>(x), piece.extent, piece.sums);
      });
    if (step_.all_ranks) sum_moments(frame);
    for_each_item(geometry_.threads, geometry_.channels, [&](std::size_t c) {
      if (!step_.training)
        norm_.set(c, norm_.statistics[c], norm_.statistics[geometry_.channels + c]);
      else
        norm_.publish(c, step_.all_ranks ? of_ranks(frame, c) : geometry_.sample(frame, c));
    });
    geometry_.for_each_piece(frame, [&](const Piece& piece) {
      apply_(piece.of<T>(x), piece.of<T>(residual_), piece.of<T>(y_), moments_, piece.extent,
             step_.then);
    });
  }

 private:
  // Sums over all ranks, of distances to the running mean: it is the same on all of them, and sums
  // of squares lose what is far from zero.
  void sum_moments(const Frame& frame) const {
    const std::size_t channels = geometry_.channels;
    float* sums = ranks_.in(frame);
    for_each_item(geometry_.threads, channels, [&](std::size_t c) {
      const Sample s = geometry_.sample(frame, c);
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

  BatchNormForward step_;
  Geometry geometry_;
  Moments moments_;
  Tensor residual_;
  Tensor y_;
  ChannelNorm norm_;
  const float* origin_;  // for sums over ranks
  float* count_;
  Scratch ranks_;
  decltype(pick<PixelMoments, T>(Isa{})) pixel_moments_;
  decltype(pick_apply<T>({}, Isa{})) apply_;
};

template <class T>
class Backward {
 public:
  Backward(const BatchNormBackward& step, Planner& planner)
      : geometry_(planner.tensor(step.x), planner),
        moments_(geometry_.x, planner.kept(Kept::moments, name_of_norm(step))),
        upstream_{geometry_.x, tensor_or_none(step.y, planner), planner.tensor(step.dy),
                  tensor_or_none(step.dy2, planner), step.then},
        dx_(planner.tensor(step.dx)),
        g_(written_g(step, planner)),
        gradient_{moments_, planner.gradients(step.gamma), planner.gradients(step.beta)},
        ranks_count_(step.all_ranks ? planner.kept(Kept::count, name_of_norm(step)) : nullptr),
        averages_(planner.scratch(2 * moments_.channels * sizeof(float))),
        pixel_sums_(pick_pixel_sums<T>(step.then, planner.isa())),
        input_gradient_(pick_input_gradient<T>(step.then, planner.isa())) {}

  void operator()(const Frame& frame) const {
    float *mean_g = averages_.in(frame), *slope = mean_g + moments_.channels;
    geometry_.for_each_piece(frame, [&](const Piece& piece) {
      pixel_sums_(upstream_.of(piece), piece.of<T>(g_), moments_, piece.extent, piece.sums);
    });
    std::fill_n(mean_g, 2 * moments_.channels, 0.f);
    for_each_item(geometry_.threads, geometry_.channels,
                  [&](std::size_t c) { combine(frame, c, mean_g, slope); });
    if (ranks_count_) average_over_ranks(frame, mean_g);
    // Where g was written, it is read back: one tensor instead of up to three.
    const UpstreamTensors u =
        g_.data ? UpstreamTensors{upstream_.x, {}, g_, {}, Activation::none} : upstream_;
    geometry_.for_each_piece(frame, [&](const Piece& piece) {
      input_gradient_(u.of(piece), piece.of<T>(dx_), moments_, piece.extent, mean_g, slope);
    });
  }

 private:
  // Upstream, of all pieces.
  struct UpstreamTensors {
    Tensor x, y, dy, dy2;
    Activation then;
    Upstream<T> of(const Piece& piece) const {
      return {piece.of<T>(x), piece.of<T>(y), piece.of<T>(dy), piece.of<T>(dy2), then};
    }
  };

  // Where g is written in the first pass: for the residual, or into dx where it takes long to make.
  static Tensor written_g(const BatchNormBackward& step, Planner& planner) {
    if (step.dresidual != no_tensor) return planner.tensor(step.dresidual);
    const Tensor dx = planner.tensor(step.dx);
    return has_exponential(step.then) && dx.data != planner.tensor(step.x).data ? dx : Tensor{};
  }

  void combine(const Frame& frame, std::size_t c, float* mean_g, float* slope) const {
    double sum = 0, dot = 0;
    geometry_.for_each_sum(frame, c, [&](std::size_t, double g, double product) {
      sum += g;
      dot += product;
    });
    const double pixels = ranks_count_ ? 1 : static_cast<double>(geometry_.x.shape.pixels());
    gradient_.write(c, sum, dot, pixels, mean_g, slope);
  }

  // What combine() left are sums then.
  void average_over_ranks(const Frame& frame, float* averages) const {
    frame.sum_over_ranks({averages, 2 * moments_.channels});
    for (std::size_t i = 0; i < 2 * moments_.channels; ++i) averages[i] /= *ranks_count_;
  }

  Geometry geometry_;
  Moments moments_;
  UpstreamTensors upstream_;
  Tensor dx_, g_;
  ChannelGradient gradient_;
  const float* ranks_count_;  // pixels of all ranks; null: this rank's batch is all there is
  Scratch averages_;
  decltype(pick_pixel_sums<T>({}, Isa{})) pixel_sums_;
  decltype(pick_input_gradient<T>({}, Isa{})) input_gradient_;
};

// By the kernel of Backward, without what that takes from statistics of the batch.
template <class T>
class FrozenBackward {
 public:
  FrozenBackward(const BatchNormInputGradient& step, Planner& planner)
      : geometry_(planner.tensor(step.dy), planner),
        moments_(geometry_.x, planner.kept(Kept::moments, name_of_norm(step))),
        dx_(planner.tensor(step.dx)),
        zeros_(planner.scratch(2 * moments_.channels * sizeof(float))),
        input_gradient_(pick_input_gradient<T>(Activation::none, planner.isa())) {}

  void operator()(const Frame& frame) const {
    float* const zeros = zeros_.in(frame);
    std::fill_n(zeros, 2 * moments_.channels, 0.f);
    geometry_.for_each_piece(frame, [&](const Piece& piece) {
      const Pixels<T> dy = piece.of<T>(geometry_.x);
      input_gradient_({dy, {}, dy, {}, Activation::none}, piece.of<T>(dx_), moments_, piece.extent,
                      zeros, zeros + moments_.channels);
    });
  }

 private:
  Geometry geometry_;
  Moments moments_;
  Tensor dx_;
  Scratch zeros_;
  decltype(pick_input_gradient<T>({}, Isa{})) input_gradient_;
};

}  // namespace

template <>
Action plan(const BatchNormInputGradient& step, Planner& planner) {
  return with_type(planner.tensor(step.dy).element,
                   [&]<class T>(T) -> Action { return FrozenBackward<T>(step, planner); });
}

template <>
Action plan(const BatchNormForward& step, Planner& planner) {
  return with_type(planner.tensor(step.x).element, [&]<class T>(T) -> Action {
    return padding_zeroed(step.then, step.y, Forward<T>(step, planner), planner);
  });
}

template <>
Action plan(const BatchNormBackward& step, Planner& planner) {
  return with_type(planner.tensor(step.x).element,
                   [&]<class T>(T) -> Action { return Backward<T>(step, planner); });
}

}  // namespace ringtrain::compute::onednn
