#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "compute/onednn/plan.hpp"

namespace ringtrain::compute::onednn {
namespace {

// Pixels handled together: their squares are stored well before the windows load them again, which
// the processor cannot forward from the store buffer.
constexpr int tile_pixels = 16;

// One LRN's constants and sizes. A row holds the channels of one pixel between zeroed margins, so
// that windows need no bounds.
struct Lrn {
  int radius, margin, padded_channels;
  float bias, alpha, beta;
  bool mask;
  std::size_t block_step, pixel_step;

  std::size_t at(int channel, int block, int pixel) const {
    return channel / block * block_step + pixel * pixel_step;
  }
  std::size_t row() const { return padded_channels + 2 * margin; }
};

// s^-beta. For 3/4, the usual beta: Newton's iteration for y^-4 = s^3, from a guess made of the
// exponent's bits that is wrong by at most 4 %; three rounds reach float precision.
template <int B>
[[gnu::always_inline]] inline Vec<B> negative_power(Vec<B> s, float beta) {
  Vec<B> y;
  if (beta != 0.75f) {
    for (int lane = 0; lane < B; ++lane) y[lane] = std::pow(s[lane], -beta);
    return y;
  }
  IntVec<B> bits;
  std::memcpy(&bits, &s, sizeof s);
  bits = 0x6f15'0000 - (bits - (bits >> 2));
  std::memcpy(&y, &bits, sizeof y);
  for (int round = 0; round < 3; ++round) {
    const Vec<B> t = s * y;  // about s^(1/4): s^3 alone could overflow
    y *= 1.25f - 0.25f * (t * t * (t * y));
  }
  return y;
}

template <int B>
[[gnu::always_inline]] inline Vec<B> window(const float* centre, int radius) {
  Vec<B> sum = load<B>(centre);
  if (radius == 4) {  // known at compile time: unrolled
    for (int d = 1; d <= 4; ++d) sum += load<B>(centre - d) + load<B>(centre + d);
    return sum;
  }
  for (int d = 1; d <= radius; ++d) sum += load<B>(centre - d) + load<B>(centre + d);
  return sum;
}

[[gnu::always_inline]] inline void clear_margins(const Lrn& l, int pixels, float* rows) {
  for (int p = 0; p < pixels; ++p) {
    float* row = rows + p * l.row();
    std::fill_n(row, l.margin, 0.f);
    std::fill_n(row + l.margin + l.padded_channels, l.margin, 0.f);
  }
}

// Squares of `pixels` pixels into rows, from the first channel block of the first pixel at x.
template <int B, class T>
[[gnu::always_inline]] inline void store_squares(const Lrn& l, const T* x, int pixels,
                                                 float* rows) {
  clear_margins(l, pixels, rows);
  for (int c = 0; c < l.padded_channels; c += B)
    for (int p = 0; p < pixels; ++p) {
      const Vec<B> v = load<B>(x + l.at(c, B, p));
      store<B>(rows + p * l.row() + l.margin + c, v * v);
    }
}

template <int B, class T>
struct Forward {
  [[gnu::always_inline]] static inline void run(const Lrn& l, const T* x, T* y, int pixels,
                                                float* rows) {
    store_squares<B>(l, x, pixels, rows);
    for (int c = 0; c < l.padded_channels; c += B)
      for (int p = 0; p < pixels; ++p) {
        const std::size_t at = l.at(c, B, p);
        const Vec<B> s = l.bias + l.alpha * window<B>(rows + p * l.row() + l.margin + c, l.radius);
        store<B>(y + at, load<B>(x + at) * negative_power<B>(s, l.beta));
      }
  }
};

// dx = dy s^-b - 2 a b x * sum of (dy x s^-(b+1)) over the window
template <int B, class T>
struct Backward {
  [[gnu::always_inline]] static inline void run(const Lrn& l, const T* x, const T* dy, T* dx,
                                                int pixels, float* rows) {
    float *squares = rows, *products = squares + tile_pixels * l.row(),
          *directs = products + tile_pixels * l.row();
    store_squares<B>(l, x, pixels, squares);
    clear_margins(l, pixels, products);
    for (int c = 0; c < l.padded_channels; c += B)
      for (int p = 0; p < pixels; ++p) {
        const std::size_t at = l.at(c, B, p), lane = p * l.row() + l.margin + c;
        const Vec<B> s = l.bias + l.alpha * window<B>(squares + lane, l.radius);
        const Vec<B> direct = load<B>(dy + at) * negative_power<B>(s, l.beta);
        store<B>(directs + lane, direct);
        store<B>(products + lane, direct * load<B>(x + at) / s);
      }
    for (int c = 0; c < l.padded_channels; c += B)
      for (int p = 0; p < pixels; ++p) {
        const std::size_t at = l.at(c, B, p), lane = p * l.row() + l.margin + c;
        const Vec<B> v = load<B>(x + at);
        const Vec<B> result = load<B>(directs + lane) -
                              (2 * l.alpha * l.beta) * v * window<B>(products + lane, l.radius);
        store<B>(dx + at, l.mask ? (v > 0 ? result : Vec<B>{}) : result);
      }
  }
};

template <class Step>
Lrn constants(const Step& step, const Tensor& x, bool mask) {
  const int margin = (step.how.radius + x.block - 1) / x.block * x.block;
  return {step.how.radius, margin, x.padded_channels(), step.how.bias, step.how.alpha,
          step.how.beta,   mask,   x.block_step(),      x.pixel_step()};
}

// Calls f(first element, pixels, the thread's rows) for every tile of every image.
template <class F>
void for_each_tile(const Tensor& x, int threads, const F& f) {
  const std::size_t tiles = (x.pixels() + tile_pixels - 1) / tile_pixels;
  for_each_item(threads, x.shape.batch * tiles, [&](std::size_t item) {
    const std::size_t first = item % tiles * tile_pixels;
    f(item / tiles * x.image() + first * x.pixel_step(),
      static_cast<int>(std::min<std::size_t>(tile_pixels, x.pixels() - first)));
  });
}

}  // namespace

template <>
Action plan(const LrnForward& step, Planner& planner) {
  const Tensor x = planner.tensor(step.x), y = planner.tensor(step.y);
  const Lrn lrn = constants(step, x, false);
  const std::size_t need = tile_pixels * lrn.row();
  const Scratch rows = planner.scratch(planner.threads() * need * sizeof(float));
  return with_type(x.element, [&]<class T>(T) -> Action {
    return [=, threads = planner.threads(),
            forward = pick<Forward, T>(planner.isa())](const Frame& frame) {
      for_each_tile(x, threads, [&](std::size_t at, int pixels) {
        forward(lrn, x.as<T>() + at, y.as<T>() + at, pixels, rows.in(frame) + this_thread() * need);
      });
    };
  });
}

template <>
Action plan(const LrnBackward& step, Planner& planner) {
  const Tensor x = planner.tensor(step.x), dy = planner.tensor(step.dy),
               dx = planner.tensor(step.dx);
  const Lrn lrn = constants(step, x, step.mask);
  const std::size_t need = 3 * tile_pixels * lrn.row();
  const Scratch rows = planner.scratch(planner.threads() * need * sizeof(float));
  return with_type(x.element, [&]<class T>(T) -> Action {
    return [=, threads = planner.threads(),
            backward = pick<Backward, T>(planner.isa())](const Frame& frame) {
      for_each_tile(x, threads, [&](std::size_t at, int pixels) {
        backward(lrn, x.as<T>() + at, dy.as<T>() + at, dx.as<T>() + at, pixels,
                 rows.in(frame) + this_thread() * need);
      });
    };
  });
}

}  // namespace ringtrain::compute::onednn
