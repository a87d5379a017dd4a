#include <algorithm>
#include <limits>

#include "compute/reference/state.hpp"
#include "compute/reference/window.hpp"

namespace ringtrain::reference {
namespace {

// How many taps of each window are inside the image, by output pixel.
std::vector<double> taps_inside(const Shape& x, const Shape& y, const Window& window) {
  std::vector<double> inside(y.pixels());
  for_each_tap(x, y, window, [&](std::size_t out, std::size_t, std::size_t) { ++inside[out]; });
  return inside;
}

}  // namespace

void run(const MaxPoolForward& step, State& s) {
  const int channels = s.shape(step.x).channels;
  const auto& x = s[step.x];
  auto& y = s[step.y];
  std::ranges::fill(y, -std::numeric_limits<double>::infinity());
  for_each_tap(s.shape(step.x), s.shape(step.y), step.window,
               [&](std::size_t out, std::size_t in, std::size_t) {
                 for (int c = 0; c < channels; ++c)
                   y[out * channels + c] = std::max(y[out * channels + c], x[in * channels + c]);
               });
}

void run(const MaxPoolBackward& step, State& s) {
  const int channels = s.shape(step.x).channels;
  const auto &x = s[step.x], &y = s[step.y], &dy = s[step.dy];
  auto& dx = s[step.dx];
  std::ranges::fill(dx, 0);
  std::vector<bool> given(dy.size());
  for_each_tap(s.shape(step.x), s.shape(step.y), step.window,
               [&](std::size_t out, std::size_t in, std::size_t) {
                 for (int c = 0; c < channels; ++c) {
                   const std::size_t o = out * channels + c, i = in * channels + c;
                   if (given[o] || x[i] != y[o]) continue;
                   dx[i] += dy[o];
                   given[o] = true;
                 }
               });
}

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

}  // namespace ringtrain::reference
