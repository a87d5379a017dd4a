#include "compute/onednn/kernels/batch_norm/pieces.hpp"

namespace ringtrain::compute::onednn {

Moments named_moments(VectorId scale, const Tensor& x, Planner& planner) {
  return {x, planner.keep(Kept::moments_of_pieces, scale, Moments::size(x))};
}

double* named_sums(VectorId sums, const Tensor& x, Planner& planner) {
  constexpr std::size_t floats = 2 * sizeof(double) / sizeof(float);
  return reinterpret_cast<double*>(planner.keep(Kept::sums, sums, floats * x.padded_channels()));
}

NamedGradient::NamedGradient(VectorId g_scale, const Tensor& x, Planner& planner)
    : moments(x, planner.keep(Kept::coefficients, g_scale,
                              Moments::size(x) + std::size_t(2) * x.padded_channels())),
      mean_g(moments.mean + Moments::size(x)),
      slope(mean_g + moments.channels) {}

GradientSums::GradientSums(const BatchNormSums& how, Planner& planner)
    : of_batch_{named_moments(how.scale, planner.tensor(how.x), planner),
                planner.gradients(how.gamma), planner.gradients(how.beta)},
      named_(how.g_scale, planner.tensor(how.x), planner),
      channels_(how.beta.count),
      count_(static_cast<double>(how.count)) {}

namespace {

template <class T>
Action plan_statistics(const BatchNormStatistics& step, Planner& planner) {
  const Geometry geometry(planner.tensor(step.x), planner);
  return [geometry, sums = named_sums(step.sums, geometry.x, planner),
          pixel_moments = pick<PixelMoments, T>(planner.isa())](const Frame& frame) {
    geometry.for_each_piece(frame, [&](const Piece& piece) {
      pixel_moments(piece.of<T>(geometry.x), piece.extent, piece.sums);
    });
    for_each_item(geometry.threads, geometry.channels, [&](std::size_t c) {
      const Sample s = geometry.sample(frame, c);
      sums[c] = s.count * s.mean;
      sums[geometry.x.padded_channels() + c] = s.squares + s.count * s.mean * s.mean;
    });
  };
}

template <class T>
Action plan_apply(const BatchNormApply& step, Planner& planner) {
  const Geometry geometry(planner.tensor(step.x), planner);
  return [geometry, moments = named_moments(step.how.scale, geometry.x, planner),
          residual = tensor_or_none(step.how.residual, planner), y = planner.tensor(step.y),
          then = step.how.then,
          apply = pick_apply<T>(step.how.then, planner.isa())](const Frame& frame) {
    geometry.for_each_piece(frame, [&](const Piece& piece) {
      apply(piece.of<T>(geometry.x), piece.of<T>(residual), piece.of<T>(y), moments, piece.extent,
            then);
    });
  };
}

template <class T>
Action plan_reduce(const BatchNormBackwardReduce& step, Planner& planner) {
  const Geometry geometry(planner.tensor(step.how.x), planner);
  return [geometry, sums = GradientSums(step.how, planner), dy = planner.tensor(step.dy),
          y = tensor_or_none(step.how.y, planner), skip = tensor_or_none(step.how.skip, planner),
          g = tensor_or_none(step.how.g, planner), then = step.how.then,
          pixel_sums = pick_pixel_sums<T>(step.how.then, planner.isa())](const Frame& frame) {
    geometry.for_each_piece(frame, [&](const Piece& piece) {
      pixel_sums(
          {piece.of<T>(geometry.x), piece.of<T>(y), piece.of<T>(dy), piece.of<T>(skip), then},
          piece.of<T>(g), sums.moments(), piece.extent, piece.sums);
    });
    sums.take(geometry.threads, [&](std::size_t c) {
      std::pair<double, double> both{};
      geometry.for_each_sum(frame, c, [&](std::size_t, double sum, double dot) {
        both.first += sum;
        both.second += dot;
      });
      return both;
    });
  };
}

template <class T>
Action plan_gradient(const BatchNormBackwardApply& step, Planner& planner) {
  const Geometry geometry(planner.tensor(step.x), planner);
  return [geometry, named = NamedGradient(step.g_scale, geometry.x, planner),
          g = planner.tensor(step.g), dx = planner.tensor(step.dx),
          input_gradient =
              pick_input_gradient<T>(Activation::none, planner.isa())](const Frame& frame) {
    geometry.for_each_piece(frame, [&](const Piece& piece) {
      input_gradient({piece.of<T>(geometry.x), {}, piece.of<T>(g), {}, Activation::none},
                     piece.of<T>(dx), named.moments, piece.extent, named.mean_g, named.slope);
    });
  };
}

}  // namespace

template <>
Action plan(const BatchNormStatistics& step, Planner& planner) {
  return with_type(planner.tensor(step.x).element,
                   [&]<class T>(T) { return plan_statistics<T>(step, planner); });
}

template <>
Action plan(const BatchNormFinalize& step, Planner& planner) {
  // Vectors have the channels of the statistics, as x has.
  Tensor x{.shape = {1, 1, 1, static_cast<int>(step.beta.count)}, .block = block_of(planner.isa())};
  const double* sums = named_sums(step.sums, x, planner);
  const ChannelNorm norm(named_moments(step.scale, x, planner), step, planner,
                         planner.buffers().batch_statistics);
  return [=, squares = sums + x.padded_channels(), count = static_cast<double>(step.count),
          threads = planner.threads()](const Frame&) {
    for_each_item(threads, norm.channels, [&](std::size_t c) {
      const double mean = sums[c] / count;
      norm.publish(c, {count, mean, std::max(squares[c] - sums[c] * mean, 0.0)});
    });
  };
}

template <>
Action plan(const BatchNormApply& step, Planner& planner) {
  return with_type(planner.tensor(step.x).element,
                   [&]<class T>(T) { return plan_apply<T>(step, planner); });
}

template <>
Action plan(const BatchNormBackwardReduce& step, Planner& planner) {
  return with_type(planner.tensor(step.dy).element,
                   [&]<class T>(T) { return plan_reduce<T>(step, planner); });
}

template <>
Action plan(const BatchNormBackwardApply& step, Planner& planner) {
  return with_type(planner.tensor(step.x).element,
                   [&]<class T>(T) { return plan_gradient<T>(step, planner); });
}

}  // namespace ringtrain::compute::onednn
