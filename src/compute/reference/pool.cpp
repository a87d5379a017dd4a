#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "compute/reference/state.hpp"

namespace ringtrain::compute::reference {
namespace {

// How many taps of each window are inside the image, by output pixel.
std::vector<double> taps_inside(const Shape& x, const Shape& y, const Window& window) {
  std::vector<double> inside(y.pixels());
  for_each_tap(x, y, window, [&](std::size_t out, std::size_t, std::size_t) { ++inside[out]; });
  return inside;
}

constexpr double lowest = -std::numeric_limits<double>::infinity();

// What is no number wins, the last of several, as in PyTorch.
bool wins(double v, double best) { return v > best || std::isnan(v); }
constexpr std::size_t none = SIZE_MAX;

// For each element of dy, which element of `x` is its window's first maximum.
std::vector<std::size_t> first_maxima(const MaxPoolBackward& step, const std::vector<double>& x,
                                      const State& s) {
  const Shape &xs = s.shape(step.x), &ys = s.shape(step.dy);
  std::vector<double> best(ys.elements(), lowest);
  std::vector<std::size_t> winners(ys.elements(), none);
  for_each_tap(xs, ys, step.window, [&](std::size_t out, std::size_t in, std::size_t) {
    for (int c = 0; c < xs.channels; ++c) {
      const std::size_t o = out * xs.channels + c, i = in * xs.channels + c;
      if (!wins(x[i], best[o])) continue;
      best[o] = x[i];
      winners[o] = i;
    }
  });
  return winners;
}

}  // namespace

template <>
void run(const MaxPoolForward& step, State& s) {
  const int channels = s.shape(step.x).channels;
  const std::vector<double> x = read(step, s);
  auto& y = s[step.y];
  std::ranges::fill(y, lowest);
  for_each_tap(s.shape(step.x), s.shape(step.y), step.window,
               [&](std::size_t out, std::size_t in, std::size_t) {
                 for (int c = 0; c < channels; ++c)
                   if (const double v = x[in * channels + c]; wins(v, y[out * channels + c]))
                     y[out * channels + c] = v;
               });
}

template <>
void run(const MaxPoolBackward& step, State& s) {
  const std::vector<std::size_t> winners = first_maxima(step, read(step, s), s);
  std::vector<double> dx(s.shape(step.x).elements());
  for (std::size_t o = 0; o < winners.size(); ++o) {
    if (winners[o] == none) continue;
    dx[winners[o]] += s[step.dy][o];
    if (step.dy2 != no_tensor) dx[winners[o]] += s[step.dy2][o];
  }
  if (step.epilogue)
    reduce_gradient(*step.epilogue, dx, s);
  else
    s[step.dx] = std::move(dx);
}

template <>
void run(const AveragePoolForward& step, State& s) {
  const Shape &xs = s.shape(step.x), &ys = s.shape(step.y);
  const auto inside = taps_inside(xs, ys, step.window);
  const auto& x = s[step.x];
  auto& y = s[step.y];
  std::ranges::fill(y, 0);
  for_each_tap(xs, ys, step.window, [&](std::size_t out, std::size_t in, std::size_t) {
    for (int c = 0; c < xs.channels; ++c)
      y[out * xs.channels + c] += x[in * xs.channels + c] / inside[out];
  });
}

template <>
void run(const AveragePoolBackward& step, State& s) {
  const Shape &xs = s.shape(step.dx), &ys = s.shape(step.dy);
  const auto inside = taps_inside(xs, ys, step.window);
  const auto& dy = s[step.dy];
  auto& dx = s[step.dx];
  std::ranges::fill(dx, 0);
  for_each_tap(xs, ys, step.window, [&](std::size_t out, std::size_t in, std::size_t) {
    for (int c = 0; c < xs.channels; ++c)
      dx[in * xs.channels + c] += dy[out * xs.channels + c] / inside[out];
  });
}

template <>
void run(const FilterForward& step, State& s) {
  const Shape &xs = s.shape(step.x), &ys = s.shape(step.y);
  auto& y = s[step.y];
  std::ranges::fill(y, 0);
  for_each_tap(xs, ys, step.window, [&](std::size_t out, std::size_t in, std::size_t tap) {
    for (int c = 0; c < xs.channels; ++c)
      y[out * xs.channels + c] += s[step.x][in * xs.channels + c] * double(step.taps[tap]);
  });
}

template <>
void run(const FilterBackward& step, State& s) {
  const Shape &xs = s.shape(step.dx), &ys = s.shape(step.dy);
  auto& dx = s[step.dx];
  std::ranges::fill(dx, 0);
  for_each_tap(xs, ys, step.window, [&](std::size_t out, std::size_t in, std::size_t tap) {
    for (int c = 0; c < xs.channels; ++c)
      dx[in * xs.channels + c] += s[step.dy][out * xs.channels + c] * double(step.taps[tap]);
  });
}

namespace {

// Calls f(element of the padded image, element of the image) for all of the first.
template <class F>
void for_each_reflected(const Shape& image, const Shape& padded, int border, F f) {
  std::size_t to = 0;
  for (int n = 0; n < padded.batch; ++n)
    for (int y = 0; y < padded.height; ++y)
      for (int x = 0; x < padded.width; ++x) {
        const int from_y = reflected(y - border, image.height),
                  from_x = reflected(x - border, image.width);
        const std::size_t from = (std::size_t(n) * image.height + from_y) * image.width + from_x;
        for (int c = 0; c < image.channels; ++c) f(to++, from * image.channels + c);
      }
}

}  // namespace

template <>
void run(const ReflectPadForward& step, State& s) {
  for_each_reflected(s.shape(step.x), s.shape(step.y), step.border,
                     [&](std::size_t to, std::size_t from) { s[step.y][to] = s[step.x][from]; });
}

template <>
void run(const ReflectPadBackward& step, State& s) {
  std::ranges::fill(s[step.dx], 0);
  for_each_reflected(s.shape(step.dx), s.shape(step.dy), step.border,
                     [&](std::size_t to, std::size_t from) { s[step.dx][from] += s[step.dy][to]; });
}

}  // namespace ringtrain::compute::reference
