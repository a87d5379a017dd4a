#include <algorithm>

#include "compute/onednn/plan.hpp"
#include "ringtrain/base/philox.hpp"

namespace ringtrain::compute::onednn {
namespace {

constexpr std::size_t chunk = 8192;  // elements: three operands fit the second-level cache

template <int B, class T>
struct Rectify {
  [[gnu::always_inline]] static inline void run(const T* x, T* y, std::size_t count) {
    for (std::size_t i = 0; i < count; i += B) store<B>(y + i, relu<B>(load<B>(x + i)));
  }
};

template <int B, class T>
struct Mask {
  [[gnu::always_inline]] static inline void run(const T* y, const T* dy, T* dx, std::size_t count) {
    for (std::size_t i = 0; i < count; i += B)
      store<B>(dx + i, load<B>(y + i) > 0 ? load<B>(dy + i) : Vec<B>{});
  }
};

template <int B, class T>
struct Sum {
  [[gnu::always_inline]] static inline void run(const T* a, const T* b, T* y, std::size_t count,
                                                bool rectify) {
    for (std::size_t i = 0; i < count; i += B) {
      const Vec<B> sum = load<B>(a + i) + load<B>(b + i);
      store<B>(y + i, rectify ? relu<B>(sum) : sum);
    }
  }
};

// Calls f(first, count) for every chunk of a tensor, padding included.
template <class F>
void for_each_chunk(int threads, std::size_t elements, const F& f) {
  for_each_item(threads, (elements + chunk - 1) / chunk, [&](std::size_t item) {
    f(item * chunk, std::min(chunk, elements - item * chunk));
  });
}

}  // namespace

template <>
Action plan(const ReluForward& step, Planner& planner) {
  const Tensor x = planner.tensor(step.x), y = planner.tensor(step.y);
  return with_type(x.element, [&]<class T>(T) -> Action {
    return
        [=, threads = planner.threads(), rectify = pick<Rectify, T>(planner.isa())](const Frame&) {
          for_each_chunk(threads, x.elements(), [&](std::size_t first, std::size_t count) {
            rectify(x.as<T>() + first, y.as<T>() + first, count);
          });
        };
  });
}

template <>
Action plan(const ReluBackward& step, Planner& planner) {
  const Tensor y = planner.tensor(step.y), dy = planner.tensor(step.dy),
               dx = planner.tensor(step.dx);
  return with_type(y.element, [&]<class T>(T) -> Action {
    return [=, threads = planner.threads(), mask = pick<Mask, T>(planner.isa())](const Frame&) {
      for_each_chunk(threads, y.elements(), [&](std::size_t first, std::size_t count) {
        mask(y.as<T>() + first, dy.as<T>() + first, dx.as<T>() + first, count);
      });
    };
  });
}

template <>
Action plan(const Add& step, Planner& planner) {
  const Tensor a = planner.tensor(step.a), b = planner.tensor(step.b), y = planner.tensor(step.y);
  return with_type(a.element, [&]<class T>(T) -> Action {
    return [=, threads = planner.threads(), rectify = step.relu,
            sum = pick<Sum, T>(planner.isa())](const Frame&) {
      for_each_chunk(threads, a.elements(), [&](std::size_t first, std::size_t count) {
        sum(a.as<T>() + first, b.as<T>() + first, y.as<T>() + first, count, rectify);
      });
    };
  });
}

template <>
Action plan(const Dropout& step, Planner& planner) {
  const Tensor x = planner.tensor(step.x), y = planner.tensor(step.y);
  return with_type(x.element, [&]<class T>(T) -> Action {
    return [=, seed = planner.seed(), threads = planner.threads()](const Frame& frame) {
      for_each_item(threads, x.shape.batch, [&](std::size_t n) {
        Philox random(seed, Purpose::dropout, step.layer + 256 * frame.batch.epochs[n],
                      frame.batch.samples[n]);
        // The padding must be zero; in place it is.
        if (y.data != x.data) std::fill_n(y.image_at<T>(n), y.image(), T(0));
        for (std::size_t pixel = 0; pixel < x.pixels(); ++pixel)
          for (int c = 0; c < x.shape.channels; ++c) {
            const std::size_t at =
                n * x.image() + c / x.block * x.block_step() + pixel * x.pixel_step() + c % x.block;
            y.as<T>()[at] = random.uniform() < step.keep ? x.as<T>()[at] / step.keep : 0;
          }
      });
    };
  });
}

}  // namespace ringtrain::compute::onednn
