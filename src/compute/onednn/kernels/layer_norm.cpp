#include <algorithm>
#include <cmath>
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

template <int B>
[[gnu::always_inline]] inline float sum_of(Vec<B> v) {
  float sum = 0;
  for (int i = 0; i < B; ++i) sum += v[i];
  return sum;
}

// The mean of a pixel's channels, and one over their deviation.
struct Moments {
  float mean, inverse;
};

template <int B, class T>
[[gnu::always_inline]] inline Moments moments_of(const PixelsWork<T>& w, std::size_t pixel) {
  const T* x = w.x.at(pixel);
  Vec<B> sum{}, squares{};
  for (int b = 0; b < w.blocks; ++b) sum += load<B>(x + b * w.block_step);
  const float mean = sum_of<B>(sum) / w.channels;
  for (int b = 0; b < w.blocks; ++b) {
    const Vec<B> from = (load<B>(x + b * w.block_step) - mean) * load<B>(w.ones + b * B);
    squares += from * from;
  }
  return {mean, 1 / std::sqrt(sum_of<B>(squares) / w.channels + w.epsilon)};
}

template <int B, class T>
struct Forward {
  [[gnu::always_inline]] static inline void run(const PixelsWork<T>& w) {
    for (std::size_t pixel = w.first; pixel < w.end; ++pixel) {
      const Moments m = moments_of<B>(w, pixel);
      for (int b = 0; b < w.blocks; ++b) {
        const Vec<B> x = load<B>(w.x.at(pixel) + b * w.block_step);
        store<B>(w.y.at(pixel) + b * w.block_step,
                 (x - m.mean) * m.inverse * load<B>(w.gamma + b * B) + load<B>(w.beta + b * B));
      }
    }
  }
};

template <int B, class T>
struct Backward {
  [[gnu::always_inline]] static inline Vec<B> normal(const PixelsWork<T>& w, std::size_t pixel,
                                                     int b, const Moments& m) {
    return (load<B>(w.x.at(pixel) + b * w.block_step) - m.mean) * m.inverse *
           load<B>(w.ones + b * B);
  }
  [[gnu::always_inline]] static inline void add(float* to, Vec<B> more) {
    store<B>(to, load<B>(to) + more);
  }
  [[gnu::always_inline]] static inline void run(const PixelsWork<T>& w) {
    for (std::size_t pixel = w.first; pixel < w.end; ++pixel) {
      const Moments m = moments_of<B>(w, pixel);
      Vec<B> sum{}, sum_x{};
      for (int b = 0; b < w.blocks; ++b) {
        const Vec<B> x = normal(w, pixel, b, m), dy = load<B>(w.dy.at(pixel) + b * w.block_step),
                     g = dy * load<B>(w.gamma + b * B);
        sum += g;
        sum_x += g * x;
        add(w.sums + b * B, dy * x);
        add(w.sums + (w.blocks + b) * B, dy);
      }
      const float mean_g = sum_of<B>(sum) / w.channels, mean_x = sum_of<B>(sum_x) / w.channels;
      for (int b = 0; b < w.blocks; ++b) {
        const Vec<B> x = normal(w, pixel, b, m),
                     g = load<B>(w.dy.at(pixel) + b * w.block_step) * load<B>(w.gamma + b * B);
        store<B>(w.y.at(pixel) + b * w.block_step,
                 (g - mean_g - x * mean_x) * m.inverse * load<B>(w.ones + b * B));
      }
    }
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

constexpr std::size_t most_sums = 32;  // of the images that one item takes

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
      const std::size_t rows = x.shape.height, width = x.shape.width;
      for_each_item(threads, x.shape.batch * rows, [&](std::size_t item) {
        PixelsWork<T> work = work_of<T>(x, y, epsilon, vectors, frame, item / rows);
        work.first = item % rows * width;
        work.end = work.first + width;
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
