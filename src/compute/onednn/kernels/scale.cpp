#include "compute/onednn/isa.hpp"
#include "compute/onednn/plan.hpp"

namespace ringtrain::compute::onednn {
namespace {

// One block of channels of an image; pixels that are null are not wanted.
template <class T>
struct ScaleWork {
  Pixels<T> x, s, dy, y, ds;
  std::size_t pixels;
};

template <int B, class T>
struct Scaled {
  [[gnu::always_inline]] static inline void run(const ScaleWork<T>& w) {
    const Vec<B> factor = load<B>(w.s.at(0));
    for (std::size_t p = 0; p < w.pixels; ++p) store<B>(w.y.at(p), load<B>(w.x.at(p)) * factor);
  }
};

// y is dx, and may lie over dy.
template <int B, class T>
struct ScaledGradient {
  [[gnu::always_inline]] static inline void run(const ScaleWork<T>& w) {
    const Vec<B> factor = load<B>(w.s.at(0));
    Vec<B> sums[4]{};
    const auto add = [&](std::size_t p, Vec<B> & sum) __attribute__((always_inline)) {
      const Vec<B> dy = load<B>(w.dy.at(p));
      sum += dy * load<B>(w.x.at(p));
      if (w.y) store<B>(w.y.at(p), dy * factor);
    };
    std::size_t p = 0;
    for (; p + 4 <= w.pixels; p += 4)
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) add(p + i, sums[i]);
    for (; p < w.pixels; ++p) add(p, sums[0]);
    if (w.ds) store<B>(w.ds.at(0), (sums[0] + sums[1]) + (sums[2] + sums[3]));
  }
};

template <class T>
Action plan_blocks(void (*kernel)(const ScaleWork<T>&), const Tensor& x, const Tensor& s,
                   const Tensor& dy, const Tensor& y, const Tensor& ds, int threads) {
  return [=](const Frame&) {
    const std::size_t blocks = x.blocks();
    for_each_item(threads, x.shape.batch * blocks, [&](std::size_t item) {
      const auto part = [&](const Tensor& t) { return t.run<T>(item / blocks, item % blocks); };
      kernel({part(x), part(s), part(dy), part(y), part(ds), x.pixels()});
    });
  };
}

}  // namespace

template <>
Action plan(const ScaleForward& step, Planner& planner) {
  const Tensor &x = planner.tensor(step.x), &s = planner.tensor(step.s),
               &y = planner.tensor(step.y);
  return with_type(x.element, [&]<class T>(T) {
    return plan_blocks<T>(pick<Scaled, T>(planner.isa()), x, s, {}, y, {}, planner.threads());
  });
}

template <>
Action plan(const ScaleBackward& step, Planner& planner) {
  const auto or_none = [&](TensorId id) { return id == no_tensor ? Tensor{} : planner.tensor(id); };
  const Tensor x = planner.tensor(step.x);
  return with_type(x.element, [&]<class T>(T) {
    return plan_blocks<T>(pick<ScaledGradient, T>(planner.isa()), x, planner.tensor(step.s),
                          planner.tensor(step.dy), or_none(step.dx), or_none(step.ds),
                          planner.threads());
  });
}

}  // namespace ringtrain::compute::onednn
