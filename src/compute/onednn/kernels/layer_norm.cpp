#include <algorithm>
#include <cmath>
#include <type_traits>
#include <utility>
#include <vector>

#include "compute/onednn/isa.hpp"
#include "compute/onednn/plan.hpp"

namespace ringtrain::compute::onednn {
namespace {

// Some pixels that follow each other in an image. Of vectors of channels, those past the last
// channel are zero, also in `ones`.
template <class T>
struct PixelsWork {
  Pixels<T> x, dy, y;  // of the first block of channels; y is dx in the backward step
  std::size_t block_step;
  int blocks;
  std::size_t first, end;  // pixels
  float channels, epsilon;
  const float *gamma, *beta, *ones;
  float* sums;  // dgamma, then dbeta, in the backward step
};

// Pixels that are worked on together: their sums wait for each other less, and vectors of channels
// are loaded once for all.
constexpr int together = 4;
using Quad = VecOf<together>::Float;

template <int B, int... half>
[[gnu::always_inline]] inline Vec<B / 2> folded(Vec<B> v, std::integer_sequence<int, half...>) {
  return __builtin_shufflevector(v, v, half...) + __builtin_shufflevector(v, v, (B / 2 + half)...);
}
// Each vector's sum over its lanes.
template <int B>
[[gnu::always_inline]] inline Quad sums_of(const Vec<B> (&v)[together]) {
  if constexpr (B > together) {
    Vec<B / 2> halves[together];
#pragma GCC unroll 4
    for (int i = 0; i < together; ++i)
      halves[i] = folded<B>(v[i], std::make_integer_sequence<int, B / 2>());
    return sums_of<B / 2>(halves);
  } else {
    const auto pairs = [](Quad a, Quad b) __attribute__((always_inline)) {
      return __builtin_shufflevector(a, b, 0, 2, 4, 6) + __builtin_shufflevector(a, b, 1, 3, 5, 7);
    };
    return pairs(pairs(v[0], v[1]), pairs(v[2], v[3]));
  }
}

// Calls f(b, false) for every block of channels but the last, which may have padding: f(b, true).
template <class F>
[[gnu::always_inline]] inline void for_each_block(int blocks, const F& f) {
  for (int b = 0; b + 1 < blocks; ++b) f(b, std::false_type());
  f(blocks - 1, std::true_type());
}

// `count` pixels that follow each other.
template <int B, int count, class T>
struct Tile {
  const PixelsWork<T>& w;
  std::size_t pixel;
  Quad mean{}, inverse{};  // of each pixel: the latter is one over its deviation

  [[gnu::always_inline]] inline Vec<B> at(const Pixels<T>& p, int i, int b) const {
    return load<B>(p.at(pixel + i) + b * w.block_step);
  }
  [[gnu::always_inline]] inline Vec<B> masked(Vec<B> v, int b, bool last) const {
    return last ? v * load<B>(w.ones + b * B) : v;
  }
  [[gnu::always_inline]] inline void put(int i, int b, Vec<B> v) const {
    store<B>(w.y.at(pixel + i) + b * w.block_step, v);
  }
  [[gnu::always_inline]] inline void take_moments() {
    Vec<B> sum[together]{}, squares[together]{};
    for (int b = 0; b < w.blocks; ++b)
#pragma GCC unroll 4
      for (int i = 0; i < count; ++i) sum[i] += at(w.x, i, b);
    mean = sums_of<B>(sum) / w.channels;
    for_each_block(
        w.blocks, [&](int b, auto last) __attribute__((always_inline)) {
#pragma GCC unroll 4
          for (int i = 0; i < count; ++i) {
            const Vec<B> from = masked(at(w.x, i, b) - mean[i], b, last);
            squares[i] += from * from;
          }
        });
    const Quad variance = sums_of<B>(squares) / w.channels + w.epsilon;
#pragma GCC unroll 4
    for (int i = 0; i < count; ++i) inverse[i] = 1 / std::sqrt(variance[i]);
  }
  [[gnu::always_inline]] inline void forward() {
    take_moments();
    for (int b = 0; b < w.blocks; ++b) {
      const Vec<B> gamma = load<B>(w.gamma + b * B), beta = load<B>(w.beta + b * B);
#pragma GCC unroll 4
      for (int i = 0; i < count; ++i)
        put(i, b, (at(w.x, i, b) - mean[i]) * inverse[i] * gamma + beta);
    }
  }
  // dy is zero in the padding.
  [[gnu::always_inline]] inline void backward() {
    take_moments();
    Vec<B> sum[together]{}, sum_x[together]{};
    for (int b = 0; b < w.blocks; ++b) {
      const Vec<B> gamma = load<B>(w.gamma + b * B);
      float *const dgamma = w.sums + b * B, *const dbeta = dgamma + w.blocks * B;
      Vec<B> to_gamma = load<B>(dgamma), to_beta = load<B>(dbeta);
#pragma GCC unroll 4
      for (int i = 0; i < count; ++i) {
        const Vec<B> x = (at(w.x, i, b) - mean[i]) * inverse[i], dy = at(w.dy, i, b),
                     g = dy * gamma;
        sum[i] += g;
        sum_x[i] += g * x;
        to_gamma += dy * x;
        to_beta += dy;
      }
      store<B>(dgamma, to_gamma);
      store<B>(dbeta, to_beta);
    }
    // (dy * gamma - mean_g - x * mean_x) * inverse, where x = (x - mean) * inverse
    const Quad slope = sums_of<B>(sum_x) / w.channels * inverse * inverse,
               shift = sums_of<B>(sum) / w.channels * inverse;
    for_each_block(
        w.blocks, [&](int b, auto last) __attribute__((always_inline)) {
          const Vec<B> gamma = load<B>(w.gamma + b * B);
#pragma GCC unroll 4
          for (int i = 0; i < count; ++i) {
            const Vec<B> g = at(w.dy, i, b) * gamma * inverse[i] - shift[i];
            put(i, b, masked(g - (at(w.x, i, b) - mean[i]) * slope[i], b, last));
          }
        });
  }
};

template <int B, class T>
struct Forward {
  [[gnu::always_inline]] static inline void run(const PixelsWork<T>& w) {
    std::size_t pixel = w.first;
    for (; pixel + together <= w.end; pixel += together) Tile<B, together, T>{w, pixel}.forward();
    for (; pixel < w.end; ++pixel) Tile<B, 1, T>{w, pixel}.forward();
  }
};

template <int B, class T>
struct Backward {
  [[gnu::always_inline]] static inline void run(const PixelsWork<T>& w) {
    std::size_t pixel = w.first;
    for (; pixel + together <= w.end; pixel += together) Tile<B, together, T>{w, pixel}.backward();
    for (; pixel < w.end; ++pixel) Tile<B, 1, T>{w, pixel}.backward();
  }
};

// gamma, beta and ones in scratch memory, with zeros in the padding.
class PaddedVectors {
 public:
  PaddedVectors(const Tensor& t, const float* gamma, const float* beta, Planner& planner)
      : channels_(t.shape.channels),
        padded_(t.padded_channels()),
        gamma_(gamma),
        beta_(beta),
        copy_(planner.scratch(3 * sizeof(float) * padded_)) {}
  void fill(const Frame& frame) const {
    float* to = copy_.in(frame);
    std::fill_n(to, 3 * padded_, 0.f);
    std::copy_n(gamma_, channels_, to);
    std::copy_n(beta_, channels_, to + padded_);
    std::fill_n(to + 2 * padded_, channels_, 1.f);
  }
  const float* gamma(const Frame& frame) const { return copy_.in(frame); }
  const float* beta(const Frame& frame) const { return copy_.in(frame) + padded_; }
  const float* ones(const Frame& frame) const { return copy_.in(frame) + 2 * padded_; }

 private:
  std::size_t channels_, padded_;
  const float *gamma_, *beta_;
  Scratch copy_;
};

template <class T>
PixelsWork<T> work_of(const Tensor& x, const Tensor& y, float epsilon, const PaddedVectors& vectors,
                      const Frame& frame, std::size_t image) {
  return {.x = x.run<T>(image, 0),
          .dy = {},
          .y = y.run<T>(image, 0),
          .block_step = x.block_step(),
          .blocks = x.blocks(),
          .first = 0,
          .end = x.pixels(),
          .channels = static_cast<float>(x.shape.channels),
          .epsilon = epsilon,
          .gamma = vectors.gamma(frame),
          .beta = vectors.beta(frame),
          .ones = vectors.ones(frame),
          .sums = nullptr};
}

constexpr std::size_t pixels_of_item = 64;  // in the forward step
constexpr std::size_t most_sums = 32;       // of the images that one item takes

}  // namespace

template <>
Action plan(const LayerNormForward& step, Planner& planner) {
  const Tensor x = planner.tensor(step.x), y = planner.tensor(step.y);
  const PaddedVectors vectors(x, planner.parameters(step.gamma), planner.parameters(step.beta),
                              planner);
  return with_type(x.element, [&]<class T>(T) -> Action {
    return [=, epsilon = step.epsilon, threads = planner.threads(),
            kernel = pick<Forward, T>(planner.isa())](const Frame& frame) {
      vectors.fill(frame);
      const std::size_t pieces = (x.pixels() + pixels_of_item - 1) / pixels_of_item;
      for_each_item(threads, x.shape.batch * pieces, [&](std::size_t item) {
        PixelsWork<T> work = work_of<T>(x, y, epsilon, vectors, frame, item / pieces);
        work.first = item % pieces * pixels_of_item;
        work.end = std::min(work.first + pixels_of_item, x.pixels());
        kernel(work);
      });
    };
  });
}

template <>
Action plan(const LayerNormBackward& step, Planner& planner) {
  const Tensor x = planner.tensor(step.x), dy = planner.tensor(step.dy),
               dx = planner.tensor(step.dx);
  const PaddedVectors vectors(x, planner.parameters(step.gamma), planner.parameters(step.beta),
                              planner);
  const std::size_t parts = std::min<std::size_t>(x.shape.batch, most_sums),
                    padded = x.padded_channels();
  const Scratch scratch = planner.scratch(2 * sizeof(float) * parts * padded);
  return with_type(x.element, [&]<class T>(T) -> Action {
    return [=, epsilon = step.epsilon, threads = planner.threads(),
            dgamma = planner.gradients(step.gamma), dbeta = planner.gradients(step.beta),
            kernel = pick<Backward, T>(planner.isa())](const Frame& frame) {
      vectors.fill(frame);
      for_each_item(threads, parts, [&](std::size_t part) {
        float* sums = scratch.in(frame) + 2 * part * padded;
        std::fill_n(sums, 2 * padded, 0.f);
        for (int n = static_cast<int>(part); n < x.shape.batch; n += int(parts)) {
          PixelsWork<T> work = work_of<T>(x, dx, epsilon, vectors, frame, n);
          work.dy = dy.run<T>(n, 0);
          work.sums = sums;
          kernel(work);
        }
      });
      for_each_item(threads, x.shape.channels, [&](std::size_t c) {
        double totals[2]{};
        for (std::size_t part = 0; part < parts; ++part)
          for (const int which : {0, 1})
            totals[which] += scratch.in(frame)[(2 * part + which) * padded + c];
        dgamma[c] = static_cast<float>(totals[0]);
        dbeta[c] = static_cast<float>(totals[1]);
      });
    };
  });
}

}  // namespace ringtrain::compute::onednn
