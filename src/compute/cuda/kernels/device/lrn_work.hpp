#pragma once
#include <cmath>

#include "compute/cuda/kernels/arguments/geometry.hpp"
#include "compute/cuda/kernels/arguments/pool.hpp"
#include "compute/cuda/kernels/device/lanes.hpp"

// LRN's calls of pool.hpp for any queue: StreamQueue, or a CPU's in tests.
namespace ringtrain::compute::cuda::kernels::work {

/// Whole pixels of one block, in shared memory as fp32, and sums over their neighbouring channels.
struct LrnTile {
  std::uint32_t channels, pixels_each;
  std::size_t elements;
  int radius;
  float bias, alpha, beta;

  explicit LrnTile(const LrnOperands& o)
      : channels(small(o.channels)),
        pixels_each(std::max<std::uint32_t>(1, block_threads / channels)),
        elements(o.pixels * o.channels),
        radius(o.how.radius),
        bias(o.how.bias),
        alpha(o.how.alpha),
        beta(o.how.beta) {
    expects(o.channels <= 3072, "lrn: at most 3072 channels");
  }
  Grid launch(int arrays) const {
    return {small(divide_up(elements / channels, pixels_each)), block_threads,
            std::size_t(arrays) * size() * sizeof(float)};
  }
  constexpr std::uint32_t size() const { return channels * pixels_each; }
  constexpr std::size_t first(std::uint32_t block) const { return std::size_t(block) * size(); }
  /// Calls f(index in the tile, index in the tensor) for this thread's elements.
  template <class F>
  constexpr void for_each(std::uint32_t block, std::uint32_t thread, F f) const {
    for (std::uint32_t i = thread; i < size() && first(block) + i < elements; i += block_threads)
      f(i, first(block) + i);
  }
  /// The sum of f(j) over the channels j of i's pixel within the radius.
  template <class F>
  constexpr float around(std::uint32_t i, F f) const {
    const int channel = static_cast<int>(i % channels), base = static_cast<int>(i) - channel;
    const int last = static_cast<int>(channels) - 1;
    float sum = 0;
    for (int j = channel > radius ? channel - radius : 0;
         j <= (channel + radius < last ? channel + radius : last); ++j)
      sum += f(base + j);
    return sum;
  }
  constexpr float scale(const float* x, std::uint32_t i) const {
    return bias + alpha * around(i, [&](int j) { return x[j] * x[j]; });
  }
};

template <class T>
struct LrnForward {
  LrnTile tile;
  const T* x;
  T* y;
  constexpr int phases() const { return 2; }
  constexpr void operator()(int phase, std::uint32_t block, std::uint32_t thread,
                            unsigned char* shared) const {
    float* input = reinterpret_cast<float*>(shared);
    tile.for_each(block, thread, [&](std::uint32_t i, std::size_t at) {
      if (phase == 0)
        input[i] = static_cast<float>(x[at]);
      else
        y[at] = static_cast<T>(input[i] * std::pow(tile.scale(input, i), -tile.beta));
    });
  }
};

template <class Queue>
void lrn_forward(const LrnOperands& o, const void* x, void* y, Queue& queue) {
  with_type(o.element, [&]<class T>(T) {
    const LrnForward<T> work{LrnTile(o), static_cast<const T*>(x), static_cast<T*>(y)};
    queue.blocks(work, work.tile.launch(1));
  });
}

// dx = dy s^-b - 2 a b x * sum of (dy x s^-(b+1)) over the window
template <class T>
struct LrnBackward {
  LrnTile tile;
  const T *x, *dy;
  T* dx;
  bool mask;
  constexpr int phases() const { return 3; }
  constexpr void operator()(int phase, std::uint32_t block, std::uint32_t thread,
                            unsigned char* shared) const {
    float* input = reinterpret_cast<float*>(shared);
    float *gradient = input + tile.size(), *scaled = gradient + tile.size();
    float* spread = scaled + tile.size();
    tile.for_each(block, thread, [&](std::uint32_t i, std::size_t at) {
      if (phase == 0) {
        input[i] = static_cast<float>(x[at]);
        gradient[i] = static_cast<float>(dy[at]);
      } else if (phase == 1) {
        const float scale = tile.scale(input, i);
        scaled[i] = gradient[i] * std::pow(scale, -tile.beta);
        spread[i] = scaled[i] * input[i] / scale;
      } else {
        const float sum = tile.around(i, [&](int j) { return spread[j]; });
        const float result = scaled[i] - 2 * tile.alpha * tile.beta * input[i] * sum;
        dx[at] = static_cast<T>(mask && input[i] <= 0 ? 0 : result);
      }
    });
  }
};

template <class Queue>
void lrn_backward(const LrnOperands& o, const void* x, const void* dy, void* dx, bool mask,
                  Queue& queue) {
  with_type(o.element, [&]<class T>(T) {
    const LrnBackward<T> work{LrnTile(o), static_cast<const T*>(x), static_cast<const T*>(dy),
                              static_cast<T*>(dx), mask};
    queue.blocks(work, work.tile.launch(4));
  });
}

}  // namespace ringtrain::compute::cuda::kernels::work
