#include <algorithm>
#include <cstdint>

#include "compute/onednn/descriptors.hpp"
#include "compute/onednn/isa.hpp"
#include "compute/onednn/plan.hpp"

namespace ringtrain::compute::onednn {
namespace {

using dnnl::memory;
constexpr auto maximum = dnnl::algorithm::pooling_max;
constexpr auto average = dnnl::algorithm::pooling_avg_exclude_padding;

memory::dims kernel_of(const Window& w) { return {w.height, w.width}; }

dnnl::pooling_forward::primitive_desc forward_desc(
    dnnl::algorithm kind, const Window& window, const Tensor& x, const Tensor& y,
    const dnnl::engine& engine, dnnl::prop_kind purpose = dnnl::prop_kind::forward_training) {
  return pooling_forward_descriptor({engine, attributes()}, purpose, kind, desc_of(x), desc_of(y),
                                    kernel_of(window), window_dims(window));
}

dnnl::pooling_backward::primitive_desc backward_desc(
    dnnl::algorithm kind, const Window& window, const Tensor& dx, const Tensor& dy,
    const dnnl::engine& engine, const dnnl::pooling_forward::primitive_desc& forward) {
  return pooling_backward_descriptor({engine, attributes()}, kind, desc_of(dx), desc_of(dy),
                                     kernel_of(window), window_dims(window), forward);
}

Action action(BoundPrimitive primitive) {
  return [primitive = std::move(primitive)](const Frame&) { primitive(); };
}

// Max pools with AVX-512. A window's winner is kept as the number of its tap, in a byte.

constexpr int most_pool_taps = 255, no_winner = 255;  // of a window all of -inf

// One row of y, or of dx in the backward step: of all blocks of channels where they are last, else
// of one.
template <class T>
struct PoolRow {
  Window window;
  int row;
  Shape x_shape, y_shape;
  std::size_t blocks;
  Pixels<T> x, y;         // of the image; dx and dy in the backward step
  std::uint8_t* winners;  // of the image, in y's layout; null where there is no backward step
};

// Along one axis: taps of a window, or windows.
struct PoolSpan {
  int first, end;
};
// The taps of window `at` that lie among the pixels.
PoolSpan taps_inside(int at, int stride, int before, int taps, int pixels) {
  const int start = at * stride - before;
  return {std::max(0, -start), std::min(taps, pixels - start)};
}
// The windows that pixel `at` lies in.
PoolSpan windows_around(int at, int stride, int before, int taps, int windows) {
  const int last = at + before, outside = last - taps;
  return {outside < 0 ? 0 : outside / stride + 1, std::min(windows, last / stride + 1)};
}

// GCC takes a comparison whose result is used twice apart into 16 scalar ones: so these are
// assembly. Tap numbers are floats for the same masks.

// Takes v where it is larger than the best so far, or is no number: the last of those wins.
[[gnu::always_inline]] inline void take_winner(Vec<16> v, Vec<16> tap, Vec<16>& best,
                                               Vec<16>& winner) {
  std::uint16_t larger, no_number;
  asm("vcmpps $0x1e, %1, %2, %0" : "=Yk"(larger) : "v"(best), "v"(v));
  asm("vcmpps $0x03, %1, %1, %0" : "=Yk"(no_number) : "v"(v));
  const std::uint16_t wins = larger | no_number;
  asm("vmovaps %2, %0%{%1%}" : "+v"(best) : "Yk"(wins), "v"(v));
  asm("vmovaps %2, %0%{%1%}" : "+v"(winner) : "Yk"(wins), "v"(tap));
}
[[gnu::always_inline]] inline void store_taps(std::uint8_t* to, Vec<16> taps) {
  IntVec<16> wide;
  asm("vcvttps2dq %1, %0" : "=v"(wide) : "v"(taps));
  asm("vpmovdb %1, %0" : "=m"(*reinterpret_cast<std::uint8_t(*)[16]>(to)) : "v"(wide));
}
[[gnu::always_inline]] inline Vec<16> load_taps(const std::uint8_t* from) {
  IntVec<16> wide;
  Vec<16> taps;
  asm("vpmovzxbd %1, %0" : "=v"(wide) : "m"(*reinterpret_cast<const std::uint8_t(*)[16]>(from)));
  asm("vcvtdq2ps %1, %0" : "=v"(taps) : "v"(wide));
  return taps;
}

// y = the largest of each window, and which tap that is.
template <class T>
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,fma")]] void max_pool(const PoolRow<T>& r) {
  const Window& w = r.window;
  const PoolSpan rows = taps_inside(r.row, w.stride_y, w.top, w.height, r.x_shape.height);
  for (int at = 0; at < r.y_shape.width; ++at) {
    const PoolSpan columns = taps_inside(at, w.stride_x, w.left, w.width, r.x_shape.width);
    const std::size_t pixel = std::size_t(r.row) * r.y_shape.width + at;
    for (std::size_t c = 0; c < r.blocks * 16; c += 16) {
      Vec<16> best = Vec<16>{} - __builtin_inff(), winner = Vec<16>{} + no_winner;
      for (int y = rows.first; y < rows.end; ++y)
        for (int x = columns.first; x < columns.end; ++x) {
          const int in_row = at * w.stride_x - w.left + x, row = r.row * w.stride_y - w.top + y;
          take_winner(load<16>(r.x.at(std::size_t(row) * r.x_shape.width + in_row) + c),
                      Vec<16>{} + static_cast<float>(y * w.width + x), best, winner);
        }
      store<16>(r.y.at(pixel) + c, best);
      if (r.winners) store_taps(r.winners + pixel * r.y.step + c, winner);
    }
  }
}

// dx = for each pixel, the sum of dy over the windows that it won.
template <class T>
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,fma")]] void max_pool_gradient(
    const PoolRow<T>& r) {
  const Window& w = r.window;
  const PoolSpan rows = windows_around(r.row, w.stride_y, w.top, w.height, r.y_shape.height);
  for (int at = 0; at < r.x_shape.width; ++at) {
    const PoolSpan columns = windows_around(at, w.stride_x, w.left, w.width, r.y_shape.width);
    for (std::size_t c = 0; c < r.blocks * 16; c += 16) {
      Vec<16> sum{};
      for (int y = rows.first; y < rows.end; ++y)
        for (int x = columns.first; x < columns.end; ++x) {
          const std::size_t pixel = std::size_t(y) * r.y_shape.width + x;
          const int tap = (r.row + w.top - y * w.stride_y) * w.width + at + w.left - x * w.stride_x;
          const Vec<16> won = load_taps(r.winners + pixel * r.y.step + c),
                        this_tap = Vec<16>{} + static_cast<float>(tap);
          sum += won == this_tap ? load<16>(r.y.at(pixel) + c) : Vec<16>{};
        }
      store<16>(r.x.at(std::size_t(r.row) * r.x_shape.width + at) + c, sum);
    }
  }
}

// Whether our own kernels take this max pool: whole blocks of channels, and AVX-512. oneDNN's take
// the others; they have rules of their own for what is no number.
bool is_ours(const Window& window, const Tensor& x, Isa isa) {
  return isa == Isa::avx512 && x.block == 16 && window.height * window.width <= most_pool_taps;
}

// Runs a kernel for each row of `walked`, which is x or y. `winners` has y's layout.
template <class T>
Action for_each_row(void (*kernel)(const PoolRow<T>&), const Window& window, const Tensor& x,
                    const Tensor& y, const Tensor& walked, float* winners, int threads) {
  return [=](const Frame&) {
    const std::size_t blocks = x.channels_last ? x.blocks() : 1, planes = x.blocks() / blocks,
                      rows = walked.shape.height;
    for_each_item(threads, x.shape.batch * planes * rows, [&](std::size_t item) {
      const std::size_t image = item / rows / planes, block = item / rows % planes;
      kernel({.window = window,
              .row = static_cast<int>(item % rows),
              .x_shape = x.shape,
              .y_shape = y.shape,
              .blocks = blocks,
              .x = x.run<T>(image, block),
              .y = y.run<T>(image, block),
              .winners = winners == nullptr ? nullptr
                                            : reinterpret_cast<std::uint8_t*>(winners) +
                                                  image * y.image() + block * y.block_step()});
    });
  };
}

}  // namespace

template <>
Action plan(const MaxPoolForward& step, Planner& planner) {
  const Tensor &x = planner.tensor(step.x), &y = planner.tensor(step.y);
  if (is_ours(step.window, x, planner.isa())) {
    const std::size_t floats = (y.elements() + 3) / sizeof(float);
    float* kept = planner.training() ? planner.keep(Kept::winners, step.y, floats) : nullptr;
    return with_type(x.element, [&]<class T>(T) {
      return for_each_row<T>(max_pool<T>, step.window, x, y, y, kept, planner.threads());
    });
  }
  if (!planner.training())
    return action(planner.bind<dnnl::pooling_forward>(
        forward_desc(maximum, step.window, x, y, planner.engine(),
                     dnnl::prop_kind::forward_inference),
        {{DNNL_ARG_SRC, planner.memory(x)}, {DNNL_ARG_DST, planner.memory(y)}}));
  const auto desc = forward_desc(maximum, step.window, x, y, planner.engine());
  const memory::desc winners = desc.workspace_desc();  // which tap won, for the backward step
  float* kept = planner.keep(Kept::winners, step.y, (winners.get_size() + 3) / sizeof(float));
  return action(planner.bind<dnnl::pooling_forward>(
      desc, {{DNNL_ARG_SRC, planner.memory(x)},
             {DNNL_ARG_DST, planner.memory(y)},
             {DNNL_ARG_WORKSPACE, planner.memory(winners, kept)}}));
}

template <>
Action plan(const MaxPoolBackward& step, Planner& planner) {
  const Tensor &dx = planner.tensor(step.dx), &dy = planner.tensor(step.dy);
  if (is_ours(step.window, dx, planner.isa()))
    return with_type(dx.element, [&]<class T>(T) {
      return for_each_row<T>(max_pool_gradient<T>, step.window, dx, dy, dx,
                             planner.kept(Kept::winners, step.y), planner.threads());
    });
  const auto forward = forward_desc(maximum, step.window, dx, dy, planner.engine());
  const auto desc = backward_desc(maximum, step.window, dx, dy, planner.engine(), forward);
  return action(planner.bind<dnnl::pooling_backward>(
      desc, {{DNNL_ARG_DIFF_DST, planner.memory(dy)},
             {DNNL_ARG_DIFF_SRC, planner.memory(dx)},
             {DNNL_ARG_WORKSPACE,
              planner.memory(forward.workspace_desc(), planner.kept(Kept::winners, step.y))}}));
}

template <>
Action plan(const AveragePoolForward& step, Planner& planner) {
  const Tensor &x = planner.tensor(step.x), &y = planner.tensor(step.y);
  return action(planner.bind<dnnl::pooling_forward>(
      forward_desc(average, step.window, x, y, planner.engine()),
      {{DNNL_ARG_SRC, planner.memory(x)}, {DNNL_ARG_DST, planner.memory(y)}}));
}

template <>
Action plan(const AveragePoolBackward& step, Planner& planner) {
  const Tensor &dx = planner.tensor(step.dx), &dy = planner.tensor(step.dy);
  const auto forward = forward_desc(average, step.window, dx, dy, planner.engine());
  return action(planner.bind<dnnl::pooling_backward>(
      backward_desc(average, step.window, dx, dy, planner.engine(), forward),
      {{DNNL_ARG_DIFF_DST, planner.memory(dy)}, {DNNL_ARG_DIFF_SRC, planner.memory(dx)}}));
}

}  // namespace ringtrain::compute::onednn
