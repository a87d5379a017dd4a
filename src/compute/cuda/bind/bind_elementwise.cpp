#include <tuple>

#include "compute/cuda/bind/bind.hpp"
#include "compute/cuda/kernels/arguments/elementwise.hpp"

namespace ringtrain::compute::cuda {

template <>
Action bind(const Pointwise& s, Binder& b) {
  return [&b, s, count = b.elements(s.x), x = b.at(s.x), y = b.at(s.y)] {
    kernels::pointwise(s.f, b.element(), count, x, y, b.stream());
  };
}

template <>
Action bind(const PointwiseBackward& s, Binder& b) {
  return
      [&b, s, count = b.elements(s.dy), saved = b.at(s.saved), dy = b.at(s.dy), dx = b.at(s.dx)] {
        kernels::pointwise_backward(s.f, b.element(), count, saved, dy, dx, b.stream());
      };
}

template <>
Action bind(const Add& s, Binder& b) {
  return [&b, count = b.elements(s.y), a = b.at(s.a), c = b.at(s.b), y = b.at(s.y), s] {
    kernels::add(b.element(), count, a, c, y, s.then, b.stream());
  };
}

template <>
Action bind(const Multiply& s, Binder& b) {
  return [&b, s, count = b.elements(s.x), x = b.at(s.x), y = b.at(s.y)] {
    kernels::scale(b.element(), b.element(), s.factor, count, x, y, b.stream());
  };
}

namespace {

kernels::ScaleExtents extents_of(TensorId x, const Binder& b) {
  const Shape& shape = b.shape(x);
  return {b.element(), std::size_t(shape.batch), shape.pixels() / shape.batch, b.channels(x)};
}

}  // namespace

template <>
Action bind(const ScaleForward& s, Binder& b) {
  return [&b, e = extents_of(s.x, b), x = b.at(s.x), factors = b.at(s.s), y = b.at(s.y)] {
    kernels::scale_forward(e, x, factors, y, b.stream());
  };
}

template <>
Action bind(const ScaleBackward& s, Binder& b) {
  return [&b, e = extents_of(s.x, b), x = b.at(s.x), factors = b.at(s.s), dy = b.at(s.dy),
          dx = b.at(s.dx),
          ds = b.at(s.ds)] { kernels::scale_backward(e, x, factors, dy, dx, ds, b.stream()); };
}

template <>
Action bind(const Dropout& s, Binder& b) {
  const auto& [block, small] = std::tie(b.places().block, b.places().small);
  const kernels::DropoutOperands operands{
      .element = b.element(),
      .batch = static_cast<std::size_t>(b.shape(s.x).batch),
      .features = b.shape(s.x).features(),
      .x = b.at(s.x),
      .y = b.at(s.y),
      .how = s.how,
      .seed = b.seed(),
      .samples = block.samples(small),
  };
  return [&b, operands] { kernels::dropout(operands, b.stream()); };
}

template <>
Action bind(const Concat& s, Binder& b) {
  struct Part {
    const void* x;
    std::byte* y;
    std::size_t channels, pitch;
  };
  std::vector<Part> parts;
  auto* y = static_cast<std::byte*>(b.at(s.y));
  for (const TensorId x : s.x) {
    parts.push_back({b.at(x), y, b.channels(x), b.pitch(x)});
    y += b.channels(x) * bytes_of(b.element());
  }
  return [&b, parts, pixels = b.pixels(s.y), y_pitch = b.pitch(s.y)] {
    for (const auto& [x, y, channels, pitch] : parts)
      kernels::copy_channels(b.element(), pixels, channels, x, pitch, y, y_pitch, b.stream());
  };
}

template <>
Action bind(const ChannelSlice& s, Binder& b) {
  const auto* x = static_cast<const std::byte*>(b.at(s.x)) + s.first * bytes_of(b.element());
  return [&b, x, y = b.at(s.y), pixels = b.pixels(s.y), channels = b.channels(s.y),
          pitch = b.pitch(s.x), y_pitch = b.pitch(s.y)] {
    kernels::copy_channels(b.element(), pixels, channels, x, pitch, y, y_pitch, b.stream());
  };
}

template <>
Action bind(const ShortcutForward& s, Binder& b) {
  return [&b, s, x = b.at(s.x), y = b.at(s.y)] {
    kernels::shortcut_forward(b.element(), b.shape(s.x), b.shape(s.y), s.stride, x, y, b.stream());
  };
}

template <>
Action bind(const ShortcutBackward& s, Binder& b) {
  return [&b, s, dy = b.at(s.dy), dx = b.at(s.dx)] {
    kernels::shortcut_backward(b.element(), b.shape(s.dy), b.shape(s.dx), s.stride, dy, dx,
                               b.stream());
  };
}

}  // namespace ringtrain::compute::cuda
