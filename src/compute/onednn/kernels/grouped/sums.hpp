#pragma once
#include <algorithm>

#include "compute/onednn/kernels/grouped/tiles.hpp"

namespace ringtrain::compute::onednn {

/// What one image adds to the weight gradients of one block of channels.
template <class T>
struct GroupedSums {
  Pixels<T> x, dy;
  int x_width, x_height, width, height;  // the latter two of dy
  int taps, step, top;
  int before, columns;  // of rows of x, as WideRows has them
  int strip;            // rows of dy whose products are summed in registers
  float *rows, *dy_rows;
  float* sums;  // of each weight in their order, then of the bias

  /// Rows of x that a strip meets, and pixels of a row of dy, with two zeros at both ends.
  int rows_met() const { return (strip - 1) * step + taps; }
  int dy_columns() const { return width + 4; }
};

template <int G>
struct GroupedGradient {
  template <int B, class T>
  struct Sums {
    // As many channels of a group as the registers hold the sums of.
    static constexpr int together = B == 16 ? G : 4;
    using Accumulators = Vec<B>[together][taps_of_row];

    // Adds the products of a row of x and a row of dy.
    template <int step, int first>
    [[gnu::always_inline]] static inline void add_row(const GroupedSums<T>& w, const float* x,
                                                      const float* dy, Accumulators& sum) {
      // Zeros around a row add nothing.
      const int end = std::min(w.before + w.x_width, (w.width + 2) * step);
      for (int t = w.before / step; t * step < end; ++t)
        unrolled<step>([&]<int at>() __attribute__((always_inline)) {
          Vec<B> g[taps_of_row];
#pragma GCC unroll 3
          for (int tap = at; tap < taps_of_row; tap += step)
            g[tap] = load<B>(dy + (t - tap / step) * B);
          unrolled<together>([&]<int c>() __attribute__((always_inline)) {
            const Vec<B> v = spread<B, G, first + c>(x + (t * step + at) * B);
#pragma GCC unroll 3
            for (int tap = at; tap < taps_of_row; tap += step) sum[c][tap] += v * g[tap];
          });
        });
    }
    // Adds those of rows y to `end` of dy, and of the rows of x that meet them by one row of the
    // filter.
    template <int step, int first>
    [[gnu::always_inline]] static inline void add_strip(const GroupedSums<T>& w,
                                                        const WideRows<B, T>& x, int tap, int y,
                                                        int end) {
      float* const sums = w.sums + (std::size_t(tap) * G + first) * taps_of_row * B;
      Accumulators sum;
#pragma GCC unroll 24
      for (int i = 0; i < together * taps_of_row; ++i)
        sum[i / taps_of_row][i % taps_of_row] = load<B>(sums + i * B);
      for (const float* dy = w.dy_rows + 2 * B; y < end; ++y, dy += w.dy_columns() * B) {
        const int row = y * step + tap - w.top;
        if (row >= 0 && row < w.x_height) add_row<step, first>(w, x.row(row), dy, sum);
      }
#pragma GCC unroll 24
      for (int i = 0; i < together * taps_of_row; ++i)
        store<B>(sums + i * B, sum[i / taps_of_row][i % taps_of_row]);
    }
    // Widens a row of dy, and adds it to the gradient of the bias.
    [[gnu::always_inline]] static inline void take_row(const GroupedSums<T>& w, int y, float* to) {
      float* const bias = w.sums + std::size_t(w.taps) * G * taps_of_row * B;
      Vec<B> sum = load<B>(bias);
      for (const int at : {0, 1, w.width + 2, w.width + 3}) store<B>(to + at * B, Vec<B>{});
      for (int t = 0; t < w.width; ++t) {
        const Vec<B> dy = load<B>(w.dy.at(std::size_t(y) * w.width + t));
        store<B>(to + (2 + t) * B, dy);
        sum += dy;
      }
      store<B>(bias, sum);
    }
    template <int step>
    [[gnu::always_inline]] static inline void all(const GroupedSums<T>& w) {
      WideRows<B, T> x{w.x, w.x_width, w.x_height, w.before, w.columns, w.rows_met(), w.rows};
      for (int y = 0; y < w.height; y += w.strip) {
        const int end = std::min(y + w.strip, w.height);
        x.widen(y * step - w.top, (end - 1) * step - w.top + w.taps - 1);
        for (int row = y; row < end; ++row)
          take_row(w, row, w.dy_rows + std::size_t(row - y) * w.dy_columns() * B);
        for (int tap = 0; tap < w.taps; ++tap)
          unrolled<G / together>([&]<int part>() __attribute__((always_inline)) {
            add_strip<step, part * together>(w, x, tap, y, end);
          });
      }
    }
    [[gnu::always_inline]] static inline void run(const GroupedSums<T>& w) {
      if (w.step == 1)
        all<1>(w);
      else
        all<2>(w);
    }
  };
};

}  // namespace ringtrain::compute::onednn
