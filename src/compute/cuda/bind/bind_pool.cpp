#include <algorithm>
#include <variant>

#include "compute/cuda/bind/bind.hpp"
#include "compute/cuda/kernels/arguments/pool.hpp"
#include "ringtrain/base/error.hpp"

namespace ringtrain::compute::cuda {
namespace {

kernels::PoolOperands operands(const Window& window, TensorId x, TensorId y, const Binder& b) {
  return {b.element(), window, b.shape(x), b.shape(y), b.pitch(y)};
}

template <class Kind>
kernels::LrnOperands operands(const Kind& s, const Binder& b) {
  return {b.element(), b.pixels(s.x), b.channels(s.x), s.how};
}

kernels::PoolPrologue prologue(const std::optional<AppliedNorm>& how, const Binder& b) {
  if (!how) return {};
  return {b.vector(how->scale), b.vector(how->bias), how->then == Activation::relu};
}

// Only for a backward pass.
std::uint8_t* winners(const MaxPoolForward& s, Binder& b) {
  const bool wanted = std::ranges::any_of(b.schedule().steps, [&](const Step& step) {
    const auto* backward = std::get_if<MaxPoolBackward>(&step);
    return backward != nullptr && backward->x == s.x && backward->window == s.window;
  });
  return wanted && kernels::has_winners(s.window) ? b.make_winners(s) : nullptr;
}

kernels::FilterOperands filter(const std::vector<float>& taps, const Window& window, TensorId x,
                               TensorId y, const Binder& b) {
  if (taps.size() > kernels::FilterOperands::most_taps)
    throw Error(Exit::usage, "a filter on a GPU", "has 7x7 numbers at most");
  kernels::FilterOperands o{b.element(), window, b.shape(x), b.shape(y), {}};
  std::ranges::copy(taps, o.taps);
  return o;
}

}  // namespace

template <>
Action bind(const FilterForward& s, Binder& b) {
  return [&b, o = filter(s.taps, s.window, s.x, s.y, b), x = b.at(s.x), y = b.at(s.y)] {
    kernels::filter_forward(o, x, y, b.stream());
  };
}

template <>
Action bind(const FilterBackward& s, Binder& b) {
  return [&b, o = filter(s.taps, s.window, s.dx, s.dy, b), dy = b.at(s.dy), dx = b.at(s.dx)] {
    kernels::filter_backward(o, dy, dx, b.stream());
  };
}

template <>
Action bind(const ReflectPadForward& s, Binder& b) {
  return [&b, s, x = b.at(s.x), y = b.at(s.y)] {
    kernels::reflect_pad_forward(b.element(), b.shape(s.x), s.border, x, y, b.stream());
  };
}

template <>
Action bind(const ReflectPadBackward& s, Binder& b) {
  return [&b, s, dy = b.at(s.dy), dx = b.at(s.dx)] {
    kernels::reflect_pad_backward(b.element(), b.shape(s.dx), s.border, dy, dx, b.stream());
  };
}

template <>
Action bind(const MaxPoolForward& s, Binder& b) {
  return [&b, o = kernels::MaxPoolForwardOperands{
                  operands(s.window, s.x, s.y, b), prologue(s.prologue, b), b.at(s.x), b.at(s.y),
                  winners(s, b)}] { kernels::max_pool_forward(o, b.stream()); };
}

template <>
Action bind(const MaxPoolBackward& s, Binder& b) {
  const kernels::MaxPoolBackwardOperands o{operands(s.window, s.x, s.dy, b),
                                           prologue(s.prologue, b),
                                           b.at(s.x),
                                           b.at(s.dy),
                                           b.at(s.dy2),
                                           b.at(s.dx),
                                           b.winners(s.x, s.window)};
  if (!s.epilogue) return [&b, o] { kernels::max_pool_backward(o, b.stream()); };
  b.reserve(kernels::max_pool_workspace(o.pool));
  return [&b, o, norm = reduce_operands(*s.epilogue, b)]() mutable {
    norm.workspace = b.floats();
    kernels::max_pool_backward_reduce(o, norm, b.stream());
  };
}

template <>
Action bind(const AveragePoolForward& s, Binder& b) {
  return [&b, o = operands(s.window, s.x, s.y, b), x = b.at(s.x), y = b.at(s.y)] {
    kernels::average_pool_forward(o, x, y, b.stream());
  };
}

template <>
Action bind(const AveragePoolBackward& s, Binder& b) {
  return [&b, o = operands(s.window, s.dx, s.dy, b), dy = b.at(s.dy), dx = b.at(s.dx)] {
    kernels::average_pool_backward(o, dy, dx, b.stream());
  };
}

template <>
Action bind(const LrnForward& s, Binder& b) {
  return [&b, o = operands(s, b), x = b.at(s.x), y = b.at(s.y)] {
    kernels::lrn_forward(o, x, y, b.stream());
  };
}

template <>
Action bind(const LrnBackward& s, Binder& b) {
  return [&b, o = operands(s, b), x = b.at(s.x), dy = b.at(s.dy), dx = b.at(s.dx), s] {
    kernels::lrn_backward(o, x, dy, dx, s.mask, b.stream());
  };
}

}  // namespace ringtrain::compute::cuda
