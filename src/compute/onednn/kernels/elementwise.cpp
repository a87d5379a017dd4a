#include <algorithm>

#include "compute/onednn/kernels/activation.hpp"
#include "compute/onednn/plan.hpp"
#include "ringtrain/base/philox.hpp"

namespace ringtrain::compute::onednn {
namespace {

constexpr std::size_t chunk = 8192;  // elements: three operands fit the second-level cache

// Each knows ReLU or all activations. Lanes past the last channel are zero, and stay so.
template <Knows knows>
struct Kernels {
  template <int B, class T>
  struct Value {
    [[gnu::always_inline]] static inline void run(Activation f, const T* x, T* y,
                                                  std::size_t count) {
      with_constant<knows>(
          f, [&](auto known) __attribute__((always_inline)) {
            for (std::size_t i = 0; i < count; i += B)
              store<B>(y + i, value_of<B, knows, T>(known, load<B>(x + i)));
          });
    }
  };
  template <int B, class T>
  struct Gradient {
    [[gnu::always_inline]] static inline void run(Activation f, const T* saved, const T* dy, T* dx,
                                                  std::size_t count) {
      with_constant<knows>(
          f, [&](auto known) __attribute__((always_inline)) {
            for (std::size_t i = 0; i < count; i += B)
              store<B>(dx + i,
                       gradient_of<B, knows, T>(known, load<B>(saved + i), load<B>(dy + i)));
          });
    }
  };
  template <int B, class T>
  struct Sum {
    [[gnu::always_inline]] static inline void run(Activation f, const T* a, const T* b, T* y,
                                                  std::size_t count) {
      with_constant<knows>(
          f, [&](auto known) __attribute__((always_inline)) {
            for (std::size_t i = 0; i < count; i += B)
              store<B>(y + i, value_of<B, knows, T>(known, load<B>(a + i) + load<B>(b + i)));
          });
    }
  };
};

template <int B, class T>
struct Product {
  [[gnu::always_inline]] static inline void run(float factor, const T* x, T* y, std::size_t count) {
    for (std::size_t i = 0; i < count; i += B) store<B>(y + i, load<B>(x + i) * factor);
  }
};

// use(Kernels{}, T{}) with the kernels that `f` needs, on numbers that memory has as `element`.
template <class F>
Action with_kernels(Activation f, Element element, const F& use) {
  return with_type(element, [&]<class T>(T zero) -> Action {
    return is_relu_or_none(f) ? use(Kernels<Knows::relu>(), zero)
                              : use(Kernels<Knows::all>(), zero);
  });
}

// Calls f(first, count) for every chunk of a tensor, padding included.
template <class F>
void for_each_chunk(int threads, std::size_t elements, const F& f) {
  for_each_item(threads, (elements + chunk - 1) / chunk, [&](std::size_t item) {
    f(item * chunk, std::min(chunk, elements - item * chunk));
  });
}

}  // namespace

template <>
Action plan(const Pointwise& step, Planner& planner) {
  const Tensor x = planner.tensor(step.x), y = planner.tensor(step.y);
  Action run = with_kernels(step.f, x.element, [&]<class K, class T>(K, T) -> Action {
    return [=, f = step.f, threads = planner.threads(),
            value = pick<K::template Value, T>(planner.isa())](const Frame&) {
      for_each_chunk(threads, x.elements(), [&](std::size_t first, std::size_t count) {
        value(f, x.as<T>() + first, y.as<T>() + first, count);
      });
    };
  });
  return padding_zeroed(step.f, step.y, std::move(run), planner);
}

Action then_in_place(Action run, Activation f, TensorId y, Planner& planner) {
  return [run = std::move(run), apply = plan(Pointwise{f, y, y}, planner)](const Frame& frame) {
    run(frame);
    apply(frame);
  };
}

template <>
Action plan(const PointwiseBackward& step, Planner& planner) {
  const Tensor saved = planner.tensor(step.saved), dy = planner.tensor(step.dy),
               dx = planner.tensor(step.dx);
  return with_kernels(step.f, dy.element, [&]<class K, class T>(K, T) -> Action {
    return [=, f = step.f, threads = planner.threads(),
            gradient = pick<K::template Gradient, T>(planner.isa())](const Frame&) {
      for_each_chunk(threads, dy.elements(), [&](std::size_t first, std::size_t count) {
        gradient(f, saved.as<T>() + first, dy.as<T>() + first, dx.as<T>() + first, count);
      });
    };
  });
}

template <>
Action plan(const Add& step, Planner& planner) {
  const Tensor a = planner.tensor(step.a), b = planner.tensor(step.b), y = planner.tensor(step.y);
  Action run = with_kernels(step.then, a.element, [&]<class K, class T>(K, T) -> Action {
    return [=, then = step.then, threads = planner.threads(),
            sum = pick<K::template Sum, T>(planner.isa())](const Frame&) {
      for_each_chunk(threads, a.elements(), [&](std::size_t first, std::size_t count) {
        sum(then, a.as<T>() + first, b.as<T>() + first, y.as<T>() + first, count);
      });
    };
  });
  return padding_zeroed(step.then, step.y, std::move(run), planner);
}

template <>
Action plan(const Multiply& step, Planner& planner) {
  const Tensor x = planner.tensor(step.x), y = planner.tensor(step.y);
  return with_type(x.element, [&]<class T>(T) -> Action {
    return [=, factor = step.factor, threads = planner.threads(),
            product = pick<Product, T>(planner.isa())](const Frame&) {
      for_each_chunk(threads, x.elements(), [&](std::size_t first, std::size_t count) {
        product(factor, x.as<T>() + first, y.as<T>() + first, count);
      });
    };
  });
}

namespace {

// An image's random numbers.
Philox draws_of(const Dropout& step, std::uint64_t seed, const Sample& sample) {
  return {seed, Purpose::dropout, step.how.layer + 256 * sample.epoch, sample.key()};
}

// Whole images are kept or not.
Action plan_of_samples(const Dropout& step, Planner& planner) {
  const Tensor x = planner.tensor(step.x), y = planner.tensor(step.y);
  return with_type(x.element, [&]<class T>(T) -> Action {
    return [=, seed = planner.seed(), threads = planner.threads(),
            product = pick<Product, T>(planner.isa())](const Frame& frame) {
      const std::size_t image = x.image(), chunks = (image + chunk - 1) / chunk;
      for_each_item(threads, x.shape.batch * chunks, [&](std::size_t item) {
        const std::size_t n = item / chunks, first = item % chunks * chunk,
                          count = std::min(chunk, image - first);
        T* const to = y.image_at<T>(n) + first;
        if (draws_of(step, seed, frame.batch.samples[n]).uniform() < step.how.keep)
          product(1 / step.how.keep, x.image_at<T>(n) + first, to, count);
        else
          std::fill_n(to, count, T(0));
      });
    };
  });
}

}  // namespace

template <>
Action plan(const Dropout& step, Planner& planner) {
  if (step.how.of_sample) return plan_of_samples(step, planner);
  const Tensor x = planner.tensor(step.x), y = planner.tensor(step.y);
  return with_type(x.element, [&]<class T>(T) -> Action {
    return [=, seed = planner.seed(), threads = planner.threads()](const Frame& frame) {
      for_each_item(threads, x.shape.batch, [&](std::size_t n) {
        Philox random = draws_of(step, seed, frame.batch.samples[n]);
        // The padding must be zero; in place it is.
        if (y.data != x.data) std::fill_n(y.image_at<T>(n), y.image(), T(0));
        for (std::size_t pixel = 0; pixel < x.pixels(); ++pixel)
          for (int c = 0; c < x.shape.channels; ++c) {
            const std::size_t at =
                n * x.image() + c / x.block * x.block_step() + pixel * x.pixel_step() + c % x.block;
            y.as<T>()[at] = random.uniform() < step.how.keep ? x.as<T>()[at] / step.how.keep : 0;
          }
      });
    };
  });
}

}  // namespace ringtrain::compute::onednn
