#pragma once
#include <cmath>

#include "compute/cuda/kernels/arguments/batch_norm.hpp"
#include "compute/cuda/kernels/device/activation.hpp"
#include "compute/cuda/kernels/device/channel_sums.hpp"

// The calls of arguments/batch_norm.hpp for any queue: StreamQueue, or a CPU's in tests.

namespace ringtrain::compute::cuda::kernels::work {

template <class T, int w>
struct StatisticsTerm {
  static constexpr int values = 2, width = w;
  const T* x;
  std::size_t pitch;

  struct Column {
    const T* x;
    std::size_t pitch;
    constexpr void add(std::uint32_t pixel, Lanes<w>* sums) const {
      const auto v = load_constant<w>(x + pixel * pitch);
      for (int i = 0; i < w; ++i) {
        sums[0][i] += v[i];
        sums[1][i] += v[i] * v[i];
      }
    }
  };
  constexpr Column column(std::uint32_t first) const { return {x + first, pitch}; }
};

struct WriteSums {
  float* sums;
  std::uint32_t channels;
  template <class Total>
  constexpr void operator()(std::uint32_t channel, const Total* totals) const {
    sums[channel] = static_cast<float>(totals[0]);
    sums[channels + channel] = static_cast<float>(totals[1]);
  }
};

template <class Queue>
void batch_norm_statistics(Element element, std::size_t pixels, std::size_t channels, const void* x,
                           std::size_t x_pitch, float* sums, float* workspace, Queue& queue) {
  const bool wide = is_wide(element, {channels, x_pitch}, {x});
  with_type_and_width(element, wide, [&]<class T>(T, auto width) {
    const StatisticsTerm<T, width> term{static_cast<const T*>(x), pitch_or(x_pitch, channels)};
    sum_pixels(pixels, channels, term, WriteSums{sums, small(channels)}, workspace, queue);
  });
}

/// A channel's scale and bias, and the copies rounded to Narrow that are wanted.
template <class Narrow, class Operands>
constexpr void write_affine(const Operands& o, std::uint32_t c, float scale, float bias) {
  o.scale[c] = scale;
  o.bias[c] = bias;
  if (o.narrow_scale) static_cast<Narrow*>(o.narrow_scale)[c] = static_cast<Narrow>(scale);
  if (o.narrow_bias) static_cast<Narrow*>(o.narrow_bias)[c] = static_cast<Narrow>(bias);
}

template <class Narrow, class Number = double>
struct Finalize {
  BatchNormFinalizeOperands o;
  constexpr void operator()(std::uint32_t c) const {
    const Number count = o.ranks_count ? Number(*o.ranks_count) : Number(o.count);
    const Number mean = o.sums[c] / count;
    const Number squares = o.sums[pitch_or(o.sums_pitch, o.channels) + c];
    const Number spread = squares / count - mean * mean;
    const Number variance = spread > 0 ? spread : 0;
    const Number inverse = 1 / std::sqrt(variance + o.epsilon);
    const Number scale = (o.gamma ? o.gamma[c] : 1) * inverse;
    const Number correction = o.unbiased && count > 1 ? count / (count - 1) : 1;
    o.batch_statistics[c] = o.mean[c] = static_cast<float>(mean);
    o.batch_statistics[o.channels + c] = static_cast<float>(variance * correction);
    o.inverse_deviation[c] = static_cast<float>(inverse);
    if (o.lowered_beta) o.lowered_beta[c] = o.beta[c] - 1e-30f;
    write_affine<Narrow>(o, c, static_cast<float>(scale),
                         static_cast<float>(o.beta[c] - mean * scale));
  }
};

template <class Queue>
void batch_norm_finalize(const BatchNormFinalizeOperands& o, Queue& queue) {
  with_type(o.narrow, [&]<class Narrow>(Narrow) { queue.items(Finalize<Narrow>{o}, o.channels); });
}

template <class Narrow, class Number = double>
struct Evaluate {
  BatchNormEvaluationOperands o;
  constexpr void operator()(std::uint32_t c) const {
    const Number variance = o.statistics[o.channels + c];
    const Number scale = (o.gamma ? o.gamma[c] : 1) / std::sqrt(variance + o.epsilon);
    write_affine<Narrow>(o, c, static_cast<float>(scale),
                         static_cast<float>(o.beta[c] - o.statistics[c] * scale));
  }
};

template <class Queue>
void batch_norm_evaluation(const BatchNormEvaluationOperands& o, Queue& queue) {
  with_type(o.narrow, [&]<class Narrow>(Narrow) { queue.items(Evaluate<Narrow>{o}, o.channels); });
}

template <class T, int w, bool all>
struct ApplyTerm {
  static constexpr int width = w;
  BatchNormApplyOperands o;

  struct Column {
    const T *x, *residual;
    T* y;
    std::size_t channels, x_pitch, y_pitch;
    Lanes<w> scale, bias, residual_scale;
    Activation then;
    constexpr void run(std::uint32_t pixel) const {
      auto v = load<w>(x + pixel * x_pitch);
      for (int i = 0; i < w; ++i) v[i] = v[i] * scale[i] + bias[i];
      if (residual) {
        const auto r = load<w>(residual + pixel * channels);
        for (int i = 0; i < w; ++i) v[i] += r[i] * residual_scale[i];
      }
      for (int i = 0; i < w; ++i) v[i] = value_of<all>(then, v[i]);
      store(y + pixel * y_pitch, v);
    }
  };
  constexpr Column column(std::uint32_t first) const {
    auto bias = load_or<w>(o.bias, first, 0);
    const auto more = load_or<w>(o.residual_bias, first, 0);
    for (int i = 0; i < w; ++i) bias[i] += more[i];
    return {static_cast<const T*>(o.x) + first,
            o.residual ? static_cast<const T*>(o.residual) + first : nullptr,
            static_cast<T*>(o.y) + first,
            o.channels,
            pitch_or(o.x_pitch, o.channels),
            pitch_or(o.y_pitch, o.channels),
            load_or<w>(o.scale, first, 1),
            bias,
            load_or<w>(o.residual_scale, first, 1),
            o.then};
  }
};

template <class Queue>
void batch_norm_apply(const BatchNormApplyOperands& o, Queue& queue) {
  const bool wide = is_wide(o.element, {o.channels, o.x_pitch, o.y_pitch}, {o.x, o.y, o.residual});
  with_type_and_width(o.element, wide, [&]<class T>(T, auto width) {
    with_activations(o.then, [&](auto all) {
      map_pixels(o.pixels, o.channels, ApplyTerm<T, width, all>{o}, queue);
    });
  });
}

template <class T, int w, bool all>
struct BackwardTerm {
  static constexpr int values = 2, width = w;
  BatchNormBackwardReduceOperands o;
  bool remakes_y;  ///< the slope follows from the output, which is not there

  struct Column {
    const T *dy, *skip, *x, *y;
    T* g;
    std::size_t channels, dy_pitch, x_pitch;
    Lanes<w> scale, bias, mean;
    Activation then;
    bool remakes_y;
    constexpr void add(std::uint32_t pixel, Lanes<w>* sums) const {
      const std::size_t at = pixel * channels;
      const auto input = load<w>(x + pixel * x_pitch);
      auto gradient = load<w>(dy + pixel * dy_pitch);
      if (skip) {
        const auto more = load<w>(skip + at);
        for (int i = 0; i < w; ++i) gradient[i] += more[i];
      }
      if (then != Activation::none) activate(at, input, gradient);
      if (g) store(g + at, gradient);
      for (int i = 0; i < w; ++i) {
        sums[0][i] += gradient[i];
        sums[1][i] += gradient[i] * (input[i] - mean[i]);
      }
    }
    constexpr void activate(std::size_t at, const Lanes<w>& input, Lanes<w>& gradient) const {
      Lanes<w> saved{};
      if (y)
        saved = load<w>(y + at);
      else
        for (int i = 0; i < w; ++i) saved[i] = input[i] * scale[i] + bias[i];
      if constexpr (all)
        if (remakes_y)
          for (int i = 0; i < w; ++i) saved[i] = value_of(then, saved[i]);
      for (int i = 0; i < w; ++i) gradient[i] = gradient_of<all>(then, saved[i], gradient[i]);
    }
  };
  constexpr Column column(std::uint32_t first) const {
    return {static_cast<const T*>(o.dy) + first,
            o.skip ? static_cast<const T*>(o.skip) + first : nullptr,
            static_cast<const T*>(o.x) + first,
            o.y ? static_cast<const T*>(o.y) + first : nullptr,
            o.g ? static_cast<T*>(o.g) + first : nullptr,
            o.channels,
            pitch_or(o.dy_pitch, o.channels),
            pitch_or(o.x_pitch, o.channels),
            load_or<w>(o.scale, first, 1),
            load_or<w>(o.bias, first, 0),
            load_or<w>(o.mean, first, 0),
            o.then,
            remakes_y};
  }
};

// With n = (x - mean) * inverse: dx = gamma * inverse * (g - sum / count - n * dot / count).
struct BackwardCoefficients {
  BatchNormBackwardReduceOperands o;
  template <class Number>
  constexpr void operator()(std::uint32_t c, const Number* totals) const {
    const Number sum = totals[0], dot = totals[1] * o.inverse_deviation[c];
    if (o.dgamma) o.dgamma[c] = static_cast<float>(dot);
    o.dbeta[c] = static_cast<float>(sum);
    if (!o.ranks_sums) return write(c, sum, dot, static_cast<Number>(o.count));
    o.ranks_sums[c] = static_cast<float>(sum);
    o.ranks_sums[o.channels + c] = static_cast<float>(dot);
  }
  template <class Number>
  constexpr void write(std::uint32_t c, Number sum, Number dot, Number count) const {
    const Number inverse = o.inverse_deviation[c];
    const Number scale = (o.gamma ? o.gamma[c] : 1) * inverse;
    const Number x_scale = -scale * inverse * dot / count;
    o.g_scale[c] = static_cast<float>(scale);
    o.x_scale[c] = static_cast<float>(x_scale);
    o.shift[c] = static_cast<float>(-scale * sum / count - x_scale * o.mean[c]);
  }
};

template <class Queue>
void batch_norm_backward_reduce(const BatchNormBackwardReduceOperands& o, Queue& queue) {
  const bool remakes_y = !o.y && facts_of(o.then).slope_of_output;
  const bool wide =
      is_wide(o.element, {o.channels, o.dy_pitch, o.x_pitch}, {o.dy, o.skip, o.x, o.y, o.g});
  with_type_and_width(o.element, wide, [&]<class T>(T, auto width) {
    with_activations(o.then, [&](auto all) {
      const BackwardTerm<T, width, all> term{o, remakes_y};
      sum_pixels(o.pixels, o.channels, term, BackwardCoefficients{o}, o.workspace, queue);
    });
  });
}

template <class Number = double>
struct CoefficientsOfRanks {
  BatchNormBackwardReduceOperands o;
  constexpr void operator()(std::uint32_t c) const {
    BackwardCoefficients{o}.template write<Number>(c, o.ranks_sums[c], o.ranks_sums[o.channels + c],
                                                   *o.ranks_count);
  }
};

template <class Queue>
void batch_norm_backward_coefficients(const BatchNormBackwardReduceOperands& o, Queue& queue) {
  queue.items(CoefficientsOfRanks<>{o}, o.channels);
}

template <class T, int w>
struct BackwardApplyTerm {
  static constexpr int width = w;
  BatchNormBackwardApplyOperands o;

  struct Column {
    const T *g, *x;
    T* dx;
    std::size_t g_pitch, x_pitch, dx_pitch;
    Lanes<w> g_scale, x_scale, shift;
    constexpr void run(std::uint32_t pixel) const {
      auto v = load<w>(g + pixel * g_pitch);
      const auto input = load<w>(x + pixel * x_pitch);
      for (int i = 0; i < w; ++i) v[i] = g_scale[i] * v[i] + (x_scale[i] * input[i] + shift[i]);
      store(dx + pixel * dx_pitch, v);
    }
  };
  constexpr Column column(std::uint32_t first) const {
    return {static_cast<const T*>(o.g) + first, static_cast<const T*>(o.x) + first,
            static_cast<T*>(o.dx) + first,      pitch_or(o.g_pitch, o.channels),
            pitch_or(o.x_pitch, o.channels),    pitch_or(o.dx_pitch, o.channels),
            load_or<w>(o.g_scale, first, 1),    load_or<w>(o.x_scale, first, 0),
            load_or<w>(o.shift, first, 0)};
  }
};

template <class Queue>
void batch_norm_backward_apply(const BatchNormBackwardApplyOperands& o, Queue& queue) {
  const bool wide =
      is_wide(o.element, {o.channels, o.g_pitch, o.x_pitch, o.dx_pitch}, {o.g, o.x, o.dx});
  with_type_and_width(o.element, wide, [&]<class T>(T, auto width) {
    map_pixels(o.pixels, o.channels, BackwardApplyTerm<T, width>{o}, queue);
  });
}

template <class T, int w>
struct BackwardApplyPairTerm {
  static constexpr int width = w;
  BatchNormBackwardApplyOperands first, second;

  struct Branch {
    const T* x;
    T* dx;
    Lanes<w> g_scale, x_scale, shift;
    constexpr Lanes<w> apply(const Lanes<w>& g, std::size_t at) const {
      auto v = load<w>(x + at);
      for (int i = 0; i < w; ++i) v[i] = g_scale[i] * g[i] + (x_scale[i] * v[i] + shift[i]);
      return v;
    }
  };
  struct Column {
    const T* g;
    std::size_t channels;
    Branch first, second;
    constexpr void run(std::uint32_t pixel) const {
      const std::size_t at = pixel * channels;
      const auto gradient = load<w>(g + at);
      const auto one = first.apply(gradient, at), other = second.apply(gradient, at);
      store(first.dx + at, one);
      store(second.dx + at, other);
    }
  };
  constexpr Column column(std::uint32_t channel) const {
    return {static_cast<const T*>(first.g) + channel, first.channels, branch(first, channel),
            branch(second, channel)};
  }

 private:
  static constexpr Branch branch(const BatchNormBackwardApplyOperands& o, std::uint32_t channel) {
    return {static_cast<const T*>(o.x) + channel, static_cast<T*>(o.dx) + channel,
            load_or<w>(o.g_scale, channel, 1), load_or<w>(o.x_scale, channel, 0),
            load_or<w>(o.shift, channel, 0)};
  }
};

template <class Queue>
void batch_norm_backward_apply_pair(const BatchNormBackwardApplyOperands& first,
                                    const BatchNormBackwardApplyOperands& second, Queue& queue) {
  expects(first.g == second.g && first.pixels == second.pixels && first.channels == second.channels,
          "batch_norm_backward_apply_pair: one g of one extent");
  const bool wide =
      is_wide(first.element, {first.channels}, {first.g, first.x, first.dx, second.x, second.dx});
  with_type_and_width(first.element, wide, [&]<class T>(T, auto width) {
    map_pixels(first.pixels, first.channels, BackwardApplyPairTerm<T, width>{first, second}, queue);
  });
}

}  // namespace ringtrain::compute::cuda::kernels::work
