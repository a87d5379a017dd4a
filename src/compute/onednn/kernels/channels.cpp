#include <algorithm>
#include <cstring>

#include "compute/onednn/plan.hpp"

namespace ringtrain::compute::onednn {
namespace {

// Copies `count` channels of image n, from channel `from` of x to channel `to` of y. Whole blocks
// move as one piece where both begin a block; other channels move one by one.
template <class T>
void copy_channels_of_blocks(const Tensor& x, int from, const Tensor& y, int to, int count,
                             std::size_t n) {
  const int block = x.block;
  const std::size_t plane = x.block_step();
  const T* source = x.image_at<T>(n);
  T* target = y.image_at<T>(n);
  const int whole = from % block == 0 && to % block == 0 ? count / block : 0;
  std::memcpy(target + to / block * plane, source + from / block * plane,
              whole * plane * sizeof(T));
  for (int c = whole * block; c < count; ++c) {
    const T* in = source + (from + c) / block * plane + (from + c) % block;
    T* out = target + (to + c) / block * plane + (to + c) % block;
    for (std::size_t i = 0; i < plane; i += block) out[i] = in[i];
  }
}

template <class T>
void copy_channels(const Tensor& x, int from, const Tensor& y, int to, int count, std::size_t n) {
  if (!x.channels_last) return copy_channels_of_blocks<T>(x, from, y, to, count, n);
  const Pixels<T> source = x.run<T>(n, 0), target = y.run<T>(n, 0);
  for (std::size_t pixel = 0; pixel < x.pixels(); ++pixel)
    std::copy_n(source.at(pixel) + from, count, target.at(pixel) + to);
}

// Zeroes the lanes of image n past the last channel.
template <class T>
void clear_padding(const Tensor& t, std::size_t n) {
  const int used = t.shape.channels % t.block;
  if (used == 0) return;
  const Pixels<T> last = t.run<T>(n, t.blocks() - 1);
  for (std::size_t pixel = 0; pixel < t.pixels(); ++pixel)
    std::fill(last.at(pixel) + used, last.at(pixel) + t.block, T(0));
}

// Calls f(pixel of `large`, pixel of `small`) for (y * stride, x * stride) and (y, x).
template <class F>
void for_each_carried_pixel(const Tensor& large, const Tensor& small, int stride, const F& f) {
  for (int y = 0; y < small.shape.height; ++y)
    for (int x = 0; x < small.shape.width; ++x)
      f(std::size_t(y) * stride * large.shape.width + x * stride,
        std::size_t(y) * small.shape.width + x);
}

// Calls f(pixel of `image`, pixel of `padded`) for every pixel of the second.
template <class F>
void for_each_reflected_pixel(const Shape& image, const Shape& padded, int border, const F& f) {
  for (int y = 0; y < padded.height; ++y)
    for (int x = 0; x < padded.width; ++x)
      f(std::size_t(reflected(y - border, image.height)) * image.width +
            reflected(x - border, image.width),
        std::size_t(y) * padded.width + x);
}

// Calls f(image) on the planner's threads for each image of `t`.
template <class F>
Action for_each_image(const Tensor& t, const Planner& planner, F f) {
  return [f = std::move(f), threads = planner.threads(), images = t.shape.batch](const Frame&) {
    for_each_item(threads, images, f);
  };
}

}  // namespace

template <>
Action plan(const Concat& step, Planner& planner) {
  std::vector<Tensor> inputs;
  for (const TensorId id : step.x) inputs.push_back(planner.tensor(id));
  const Tensor y = planner.tensor(step.y);
  return with_type(y.element, [&]<class T>(T) {
    return for_each_image(y, planner, [inputs = std::move(inputs), y](std::size_t n) {
      int first = 0;
      for (const Tensor& x : inputs) {
        copy_channels<T>(x, 0, y, first, x.shape.channels, n);
        first += x.shape.channels;
      }
      clear_padding<T>(y, n);
    });
  });
}

template <>
Action plan(const ChannelSlice& step, Planner& planner) {
  const Tensor x = planner.tensor(step.x), y = planner.tensor(step.y);
  return with_type(y.element, [&]<class T>(T) {
    return for_each_image(y, planner, [x, y, first = step.first](std::size_t n) {
      copy_channels<T>(x, first, y, 0, y.shape.channels, n);
      clear_padding<T>(y, n);
    });
  });
}

template <>
Action plan(const ShortcutForward& step, Planner& planner) {
  const Tensor x = planner.tensor(step.x), y = planner.tensor(step.y);
  return with_type(y.element, [&]<class T>(T) {
    return for_each_image(y, planner, [x, y, stride = step.stride](std::size_t n) {
      for (int b = 0; b < y.blocks(); ++b)
        for_each_carried_pixel(x, y, stride, [&](std::size_t large, std::size_t small) {
          T* out = y.run<T>(n, b, small).first;
          if (b < x.blocks())
            std::copy_n(x.run<T>(n, b, large).first, x.block, out);
          else
            std::fill_n(out, y.block, T(0));
        });
    });
  });
}

template <>
Action plan(const ShortcutBackward& step, Planner& planner) {
  const Tensor dx = planner.tensor(step.dx), dy = planner.tensor(step.dy);
  return with_type(dx.element, [&]<class T>(T) {
    return for_each_image(dx, planner, [dx, dy, stride = step.stride](std::size_t n) {
      std::fill_n(dx.image_at<T>(n), dx.image(), T(0));
      for (int b = 0; b < dx.blocks(); ++b)
        for_each_carried_pixel(dx, dy, stride, [&](std::size_t large, std::size_t small) {
          std::copy_n(dy.run<T>(n, b, small).first, dx.block, dx.run<T>(n, b, large).first);
        });
      clear_padding<T>(dx, n);
    });
  });
}

template <>
Action plan(const ReflectPadForward& step, Planner& planner) {
  const Tensor x = planner.tensor(step.x), y = planner.tensor(step.y);
  return with_type(y.element, [&]<class T>(T) {
    return for_each_image(y, planner, [x, y, border = step.border](std::size_t n) {
      for (int b = 0; b < y.blocks(); ++b)
        for_each_reflected_pixel(x.shape, y.shape, border, [&](std::size_t from, std::size_t to) {
          std::copy_n(x.run<T>(n, b, from).first, x.block, y.run<T>(n, b, to).first);
        });
    });
  });
}

template <>
Action plan(const ReflectPadBackward& step, Planner& planner) {
  const Tensor dx = planner.tensor(step.dx), dy = planner.tensor(step.dy);
  const Scratch scratch =
      planner.scratch(sizeof(float) * dx.pixels() * dx.block * planner.threads());
  return with_type(dx.element, [&]<class T>(T) -> Action {
    return
        [dx, dy, scratch, border = step.border, threads = planner.threads()](const Frame& frame) {
          for_each_item(threads, dx.shape.batch, [&](std::size_t n) {
            const std::size_t count = dx.pixels() * dx.block;
            float* sums = scratch.in(frame) + this_thread() * count;  // of one block of channels
            for (int b = 0; b < dx.blocks(); ++b) {
              std::fill_n(sums, count, 0.f);
              for_each_reflected_pixel(dx.shape, dy.shape, border,
                                       [&](std::size_t to, std::size_t from) {
                                         const T* add = dy.run<T>(n, b, from).first;
                                         for (int c = 0; c < dx.block; ++c)
                                           sums[to * dx.block + c] += float(add[c]);
                                       });
              for (std::size_t pixel = 0; pixel < dx.pixels(); ++pixel)
                std::transform(sums + pixel * dx.block, sums + (pixel + 1) * dx.block,
                               dx.run<T>(n, b, pixel).first, [](float v) { return T(v); });
            }
          });
        };
  });
}

}  // namespace ringtrain::compute::onednn
