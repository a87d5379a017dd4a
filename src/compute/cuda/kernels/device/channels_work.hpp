#pragma once
#include "compute/cuda/kernels/arguments/elementwise.hpp"
#include "compute/cuda/kernels/device/activation.hpp"
#include "compute/cuda/kernels/device/channel_sums.hpp"

// The calls of elementwise.hpp on channels for any queue: StreamQueue, or a CPU's in tests.
namespace ringtrain::compute::cuda::kernels::work {

template <class T, int w, bool all>
struct BiasTerm {
  static constexpr int width = w;
  const T* x;
  const float* bias;
  T* y;
  std::size_t channels;
  Activation then;

  struct Column {
    const T* x;
    T* y;
    std::size_t channels;
    Lanes<w> bias;
    Activation then;
    constexpr void run(std::uint32_t pixel) const {
      auto v = load<w>(x + pixel * channels);
      for (int i = 0; i < w; ++i) v[i] = value_of<all>(then, v[i] + bias[i]);
      store(y + pixel * channels, v);
    }
  };
  constexpr Column column(std::uint32_t first) const {
    return {x + first, y + first, channels, load_or<w>(bias, first, 0), then};
  }
};

template <class Queue>
void add_bias(Element element, std::size_t pixels, std::size_t channels, const void* x,
              const float* bias, void* y, Activation then, Queue& queue) {
  with_type_and_width(element, is_wide(element, {channels}, {x, y}), [&]<class T>(T, auto w) {
    with_activations(then, [&](auto all) {
      const BiasTerm<T, w, all> term{static_cast<const T*>(x), bias, static_cast<T*>(y), channels,
                                     then};
      map_pixels(pixels, channels, term, queue);
    });
  });
}

template <class T, int w>
struct BiasGradientTerm {
  static constexpr int values = 1, width = w;
  const T* dy;
  std::size_t channels;

  struct Column {
    const T* dy;
    std::size_t channels;
    constexpr void add(std::uint32_t pixel, Lanes<w>* sums) const {
      const auto v = load_constant<w>(dy + pixel * channels);
      for (int i = 0; i < w; ++i) sums[0][i] += v[i];
    }
  };
  constexpr Column column(std::uint32_t first) const { return {dy + first, channels}; }
};

struct WriteBias {
  float* db;
  template <class Total>
  constexpr void operator()(std::uint32_t channel, const Total* totals) const {
    db[channel] = static_cast<float>(totals[0]);
  }
};

template <class Queue>
void bias_gradient(Element element, std::size_t pixels, std::size_t channels, const void* dy,
                   float* db, float* workspace, Queue& queue) {
  with_type_and_width(element, is_wide(element, {channels}, {dy}), [&]<class T>(T, auto w) {
    const BiasGradientTerm<T, w> term{static_cast<const T*>(dy), channels};
    sum_pixels(pixels, channels, term, WriteBias{db}, workspace, queue);
  });
}

template <class T, int w>
struct CopyChannels {
  const T* x;
  T* y;
  std::uint32_t vectors;
  std::size_t x_pitch, y_pitch;
  constexpr void operator()(std::uint32_t item) const {
    const std::size_t pixel = item / vectors, channel = std::size_t(item % vectors) * w;
    *reinterpret_cast<Pack<T, w>*>(y + pixel * y_pitch + channel) =
        get_constant<w>(x + pixel * x_pitch + channel);
  }
};

template <class Queue>
void copy_channels(Element element, std::size_t pixels, std::size_t channels, const void* x,
                   std::size_t x_pitch, void* y, std::size_t y_pitch, Queue& queue) {
  const bool wide = is_wide(element, {channels, x_pitch, y_pitch}, {x, y});
  with_type_and_width(element, wide, [&]<class T>(T, auto w) {
    const CopyChannels<T, w> work{static_cast<const T*>(x), static_cast<T*>(y), small(channels / w),
                                  x_pitch, y_pitch};
    queue.items(work, pixels * (channels / w));
  });
}

template <class T, int w>
struct ScaleForward {
  const T *x, *s;
  T* y;
  std::size_t image, channels;
  constexpr void operator()(std::uint32_t item) const {
    const std::size_t at = std::size_t(item) * w;
    auto v = load_constant<w>(x + at);
    const auto factor = load_constant<w>(s + at / image * channels + at % channels);
    for (int i = 0; i < w; ++i) v[i] *= factor[i];
    store(y + at, v);
  }
};

template <class Queue>
void scale_forward(const ScaleExtents& e, const void* x, const void* s, void* y, Queue& queue) {
  with_type_and_width(
      e.element, is_wide(e.element, {e.channels}, {x, s, y}), [&]<class T>(T, auto w) {
        const ScaleForward<T, w> work{static_cast<const T*>(x), static_cast<const T*>(s),
                                      static_cast<T*>(y), e.pixels * e.channels, e.channels};
        queue.items(work, e.batch * e.pixels * e.channels / w);
      });
}

template <class T, int w>
struct ScaleBackward {
  static constexpr int width = w;
  const T *x, *s, *dy;
  T *dx, *ds;
  std::size_t pixels, channels;
  constexpr void add(std::uint32_t sample, std::uint32_t pixel, std::uint32_t channel,
                     Lanes<w>& sum) const {
    const std::size_t at = (sample * pixels + pixel) * channels + channel;
    const auto factor = load_constant<w>(s + sample * channels + channel),
               from = load_constant<w>(x + at);
    auto v = load<w>(dy + at);
    for (int i = 0; i < w; ++i) {
      sum[i] += v[i] * from[i];
      v[i] *= factor[i];
    }
    if (dx != nullptr) store(dx + at, v);
  }
  constexpr void finish(std::uint32_t sample, std::uint32_t channel, const Lanes<w>& sum) const {
    if (ds != nullptr) store(ds + sample * channels + channel, sum);
  }
};

template <class Queue>
void scale_backward(const ScaleExtents& e, const void* x, const void* s, const void* dy, void* dx,
                    void* ds, Queue& queue) {
  with_type_and_width(e.element, is_wide(e.element, {e.channels}, {x, s, dy, dx, ds}),
                      [&]<class T>(T, auto w) {
                        const ScaleBackward<T, w> term{static_cast<const T*>(x),
                                                       static_cast<const T*>(s),
                                                       static_cast<const T*>(dy),
                                                       static_cast<T*>(dx),
                                                       static_cast<T*>(ds),
                                                       e.pixels,
                                                       e.channels};
                        sum_pixels_of_samples(e.batch, e.pixels, e.channels, term, queue);
                      });
}

/// Where one vector of channels lies in an image tensor.
struct Place {
  std::uint32_t sample, y, x, channel;
};

template <int w>
constexpr Place place_of(std::uint32_t item, const Shape& shape) {
  const std::uint32_t vectors = static_cast<std::uint32_t>(shape.channels) / w;
  const std::uint32_t pixel = item / vectors, row = pixel / static_cast<std::uint32_t>(shape.width);
  return {row / static_cast<std::uint32_t>(shape.height),
          row % static_cast<std::uint32_t>(shape.height),
          pixel % static_cast<std::uint32_t>(shape.width), item % vectors * w};
}

constexpr std::size_t index_of(const Place& at, const Shape& shape) {
  return ((std::size_t(at.sample) * shape.height + at.y) * shape.width + at.x) * shape.channels +
         at.channel;
}

template <class T, int w>
struct ShortcutForward {
  const T* x;
  T* y;
  Shape x_shape, y_shape;
  std::uint32_t stride;
  constexpr void operator()(std::uint32_t item) const {
    const Place to = place_of<w>(item, y_shape);
    Lanes<w> v{};
    if (to.channel < static_cast<std::uint32_t>(x_shape.channels))
      v = load_constant<w>(
          x + index_of({to.sample, to.y * stride, to.x * stride, to.channel}, x_shape));
    store(y + index_of(to, y_shape), v);
  }
};

template <class Queue>
void shortcut_forward(Element element, const Shape& x_shape, const Shape& y_shape, int stride,
                      const void* x, void* y, Queue& queue) {
  const bool wide =
      is_wide(element, {std::size_t(x_shape.channels), std::size_t(y_shape.channels)}, {x, y});
  with_type_and_width(element, wide, [&]<class T>(T, auto w) {
    const ShortcutForward<T, w> work{static_cast<const T*>(x), static_cast<T*>(y), x_shape, y_shape,
                                     static_cast<std::uint32_t>(stride)};
    queue.items(work, y_shape.elements() / w);
  });
}

template <class T, int w>
struct ShortcutBackward {
  const T* dy;
  T* dx;
  Shape dy_shape, dx_shape;
  std::uint32_t stride;
  constexpr void operator()(std::uint32_t item) const {
    const Place to = place_of<w>(item, dx_shape);
    const Place from{to.sample, to.y / stride, to.x / stride, to.channel};
    const bool carried = to.y % stride == 0 && to.x % stride == 0 &&
                         from.y < static_cast<std::uint32_t>(dy_shape.height) &&
                         from.x < static_cast<std::uint32_t>(dy_shape.width) &&
                         from.channel < static_cast<std::uint32_t>(dy_shape.channels);
    Lanes<w> v{};
    if (carried) v = load_constant<w>(dy + index_of(from, dy_shape));
    store(dx + index_of(to, dx_shape), v);
  }
};

template <class Queue>
void shortcut_backward(Element element, const Shape& dy_shape, const Shape& dx_shape, int stride,
                       const void* dy, void* dx, Queue& queue) {
  const bool wide =
      is_wide(element, {std::size_t(dy_shape.channels), std::size_t(dx_shape.channels)}, {dy, dx});
  with_type_and_width(element, wide, [&]<class T>(T, auto w) {
    const ShortcutBackward<T, w> work{static_cast<const T*>(dy), static_cast<T*>(dx), dy_shape,
                                      dx_shape, static_cast<std::uint32_t>(stride)};
    queue.items(work, dx_shape.elements() / w);
  });
}

}  // namespace ringtrain::compute::cuda::kernels::work
