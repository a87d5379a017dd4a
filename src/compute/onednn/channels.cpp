#include <algorithm>
#include <cstring>

#include "compute/onednn/parallel.hpp"
#include "compute/onednn/plan.hpp"

namespace ringtrain::onednn {
namespace {

// Copies `count` channels of image n, from channel `from` of x to channel `to` of y. Whole blocks
// move as one piece where both begin a block; other channels move one by one.
void copy_channels(const Tensor& x, int from, const Tensor& y, int to, int count, std::size_t n) {
  const int block = x.block;
  const std::size_t plane = x.plane();
  const float* source = x.data + n * x.image();
  float* target = y.data + n * y.image();
  const int whole = from % block == 0 && to % block == 0 ? count / block : 0;
  std::memcpy(target + to / block * plane, source + from / block * plane,
              whole * plane * sizeof(float));
  for (int c = whole * block; c < count; ++c) {
    const float* in = source + (from + c) / block * plane + (from + c) % block;
    float* out = target + (to + c) / block * plane + (to + c) % block;
    for (std::size_t i = 0; i < plane; i += block) out[i] = in[i];
  }
}

// Zeroes the lanes of image n past the last channel.
void clear_padding(const Tensor& t, std::size_t n) {
  const int used = t.shape.channels % t.block;
  if (used == 0) return;
  float* last = t.data + n * t.image() + (t.blocks() - 1) * t.plane();
  for (std::size_t i = 0; i < t.plane(); i += t.block)
    std::fill(last + i + used, last + i + t.block, 0.f);
}

// Copies the pixels (y * stride, x * stride) of `large` to (y, x) of `small`, or back.
template <class F>
void for_each_carried_pixel(const Tensor& large, const Tensor& small, int stride, const F& f) {
  for (int y = 0; y < small.shape.height; ++y)
    for (int x = 0; x < small.shape.width; ++x)
      f((std::size_t(y) * stride * large.shape.width + x * stride) * large.block,
        (std::size_t(y) * small.shape.width + x) * small.block);
}

}  // namespace

Action plan(const Concat& step, Planner& planner) {
  std::vector<Tensor> inputs;
  for (const TensorId id : step.x) inputs.push_back(planner.tensor(id));
  return [inputs = std::move(inputs), y = planner.tensor(step.y),
          threads = planner.threads()](const Frame&) {
    for_each_item(threads, y.shape.batch, [&](std::size_t n) {
      int first = 0;
      for (const Tensor& x : inputs) {
        copy_channels(x, 0, y, first, x.shape.channels, n);
        first += x.shape.channels;
      }
      clear_padding(y, n);
    });
  };
}

Action plan(const ChannelSlice& step, Planner& planner) {
  const Tensor x = planner.tensor(step.x), y = planner.tensor(step.y);
  return [=, first = step.first, threads = planner.threads()](const Frame&) {
    for_each_item(threads, y.shape.batch, [&](std::size_t n) {
      copy_channels(x, first, y, 0, y.shape.channels, n);
      clear_padding(y, n);
    });
  };
}

Action plan(const ShortcutForward& step, Planner& planner) {
  const Tensor x = planner.tensor(step.x), y = planner.tensor(step.y);
  return [=, stride = step.stride, threads = planner.threads()](const Frame&) {
    for_each_item(threads, y.shape.batch, [&](std::size_t n) {
      const float* in = x.data + n * x.image();
      float* out = y.data + n * y.image();
      for (int b = 0; b < x.blocks(); ++b, in += x.plane(), out += y.plane())
        for_each_carried_pixel(x, y, stride, [&](std::size_t large, std::size_t small) {
          std::memcpy(out + small, in + large, x.block * sizeof(float));
        });
      std::fill(out, y.data + (n + 1) * y.image(), 0.f);
    });
  };
}

Action plan(const ShortcutBackward& step, Planner& planner) {
  const Tensor dx = planner.tensor(step.dx), dy = planner.tensor(step.dy);
  return [=, stride = step.stride, threads = planner.threads()](const Frame&) {
    for_each_item(threads, dx.shape.batch, [&](std::size_t n) {
      float* out = dx.data + n * dx.image();
      const float* in = dy.data + n * dy.image();
      std::fill_n(out, dx.image(), 0.f);
      for (int b = 0; b < dx.blocks(); ++b, in += dy.plane(), out += dx.plane())
        for_each_carried_pixel(dx, dy, stride, [&](std::size_t large, std::size_t small) {
          std::memcpy(out + large, in + small, dx.block * sizeof(float));
        });
      clear_padding(dx, n);
    });
  };
}

}  // namespace ringtrain::onednn
