#pragma once
#include <cstddef>
#include <utility>

#include "compute/onednn/isa.hpp"
#include "compute/onednn/tensor.hpp"

namespace ringtrain::compute::onednn {

// Convolutions whose groups of 4 or 8 channels share a block: of filters that are three taps wide,
// with steps of 1 or 2. A product is of one channel of each group, spread over the group's lanes,
// and of the weights by which the group's results take it: so none is with a zero between groups.
//
// Rows are widened to fp32 first, into scratch memory, with zeros around: one copy of a row serves
// all taps and channels. Weights lie as row of the filter x channel of a group x column x lane.

inline constexpr int taps_of_row = 3;

/// How results meet the pixels of a row. In an input gradient with a step of 2, a result meets the
/// taps of its phase alone: `even` and `odd` are those of the first result.
enum class Meeting { step_1, step_2, even, odd };

/// Lane `channel` of every group of G, in all lanes of its group. May read as many floats past the
/// pixel as it has.
template <int B, int G, int channel>
[[gnu::always_inline]] inline Vec<B> spread(const float* pixel) {
  if constexpr (G == B) {
    // The first lane of what begins there. Of a number alone GCC 12 inserts each lane.
    return __builtin_shuffle(load<B>(pixel + channel), IntVec<B>{});
  } else {
    const Vec<B> v = load<B>(pixel);
    return [&]<int... lane>(std::integer_sequence<int, lane...>) __attribute__((always_inline)) {
      return __builtin_shuffle(v, IntVec<B>{(lane / G * G + channel)...});
    }
    (std::make_integer_sequence<int, B>());
  }
}

/// Calls f.operator()<0>(), f.operator()<1>() and so on, `count` of them.
template <int count, class F>
[[gnu::always_inline]] inline void unrolled(const F& f) {
  [&]<int... n>(std::integer_sequence<int, n...>) __attribute__((always_inline)) {
    (f.template operator()<n>(), ...);
  }
  (std::make_integer_sequence<int, count>());
}

/// The last rows of an image's block of channels, widened. Row r lies where r % rows says.
template <int B, class T>
struct WideRows {
  Pixels<T> from;
  int width, height;    // of the image
  int before, columns;  // zeros in front of a row, and pixels of a row with all zeros
  int rows;
  float* memory;
  int end = 0;  // the first row that was never widened

  [[gnu::always_inline]] inline float* row(int r) const {
    return memory + std::size_t(r % rows) * columns * B;
  }
  /// Widens all rows up to `last`, but those that nobody asks for: before `first`.
  [[gnu::always_inline]] inline void widen(int first, int last) {
    if (end < first) end = first;
    for (; end <= last && end < height; ++end) {
      float* to = row(end);
      for (int x = 0; x < before; ++x) store<B>(to + x * B, Vec<B>{});
      for (int x = 0; x < width; ++x)
        store<B>(to + (before + x) * B, load<B>(from.at(std::size_t(end) * width + x)));
      for (int x = before + width; x < columns; ++x) store<B>(to + x * B, Vec<B>{});
    }
  }
};

/// Some rows of results of one block of channels of an image.
template <class T>
struct GroupedWork {
  Pixels<T> source, result;
  int source_width, source_height;
  int width;       // of results
  int first, end;  // rows of results
  int taps;        // rows of the filter
  int step;        // from row to row: of the source where results slide, else of results
  int top;
  Meeting meeting;
  int before, columns;          // as WideRows has them
  const float *weights, *bias;  // of this block of channels; bias may be null
  float* rows;
};

/// Work of groups of G channels.
template <int G>
struct Grouped {
  template <int B, class T>
  struct Rows {
    // Sums of `count` results of a row from x on. `pixels`: the first that a result meets.
    template <int count, Meeting meeting>
    [[gnu::always_inline]] static inline void add_row(const float* pixels, const float* weights,
                                                      Vec<B> (&sum)[count]) {
      constexpr bool slides = meeting == Meeting::step_1 || meeting == Meeting::step_2;
      constexpr int step = meeting == Meeting::step_1 ? 1 : 2, phase = meeting == Meeting::odd;
      constexpr int met = slides ? (count - 1) * step + taps_of_row : count / 2 + 1 + phase;
      unrolled<G>([&]<int channel>() __attribute__((always_inline)) {
        // Else the compiler would keep all pixels in registers, for the next channel.
        const float* from = pixels;
        asm volatile("" : "+r"(from));
        Vec<B> w[taps_of_row];
#pragma GCC unroll 3
        for (int tap = 0; tap < taps_of_row; ++tap)
          w[tap] = load<B>(weights + (channel * taps_of_row + tap) * B);
#pragma GCC unroll 40
        for (int u = 0; u < met; ++u) {
          const Vec<B> x = spread<B, G, channel>(from + u * B);
#pragma GCC unroll 3
          for (int tap = 0; tap < taps_of_row; ++tap) {
            const int at = slides ? u - tap : (u - 1) * 2 + tap - phase;
            if (slides && (at < 0 || at % step != 0)) continue;
            const int t = slides ? at / step : at;
            if (t >= 0 && t < count) sum[t] += x * w[tap];
          }
        }
      });
    }
    template <int count, Meeting meeting>
    [[gnu::always_inline]] static inline void tile(const GroupedWork<T>& w,
                                                   const WideRows<B, T>& source, int y, int x) {
      constexpr bool slides = meeting == Meeting::step_1 || meeting == Meeting::step_2;
      Vec<B> sum[count];
#pragma GCC unroll 16
      for (int t = 0; t < count; ++t) sum[t] = w.bias ? load<B>(w.bias) : Vec<B>{};
      for (int tap = 0; tap < w.taps; ++tap) {
        const int row = row_met(w, slides, y, tap);
        if (row < 0 || row >= w.source_height) continue;
        const int pixel = meeting == Meeting::step_1   ? x
                          : meeting == Meeting::step_2 ? 2 * x
                                                       : x / 2;
        add_row<count, meeting>(source.row(row) + std::size_t(pixel) * B,
                                w.weights + std::size_t(tap) * G * taps_of_row * B, sum);
      }
#pragma GCC unroll 16
      for (int t = 0; t < count; ++t)
        if (x + t < w.width)
          store<B>(w.result.at(std::size_t(y) * w.width + x + t), sum[t], w.result.past_caches);
    }
    // The row of the source by which a result of row y takes this row of the filter, or -1.
    [[gnu::always_inline]] static inline int row_met(const GroupedWork<T>& w, bool slides, int y,
                                                     int tap) {
      if (slides) return y * w.step + tap - w.top;
      const int at = y + w.top - tap;
      return at % w.step == 0 ? at / w.step : -1;
    }
    template <int count, Meeting meeting>
    [[gnu::always_inline]] static inline void all(const GroupedWork<T>& w) {
      constexpr bool slides = meeting == Meeting::step_1 || meeting == Meeting::step_2;
      WideRows<B, T> source{w.source,  w.source_width, w.source_height, w.before,
                            w.columns, w.taps,         w.rows};
      for (int y = w.first; y < w.end; ++y) {
        if (slides)
          source.widen(y * w.step - w.top, y * w.step - w.top + w.taps - 1);
        else
          source.widen((y + w.top - w.taps) / w.step, (y + w.top) / w.step);
        for (int x = 0; x < w.width; x += count) tile<count, meeting>(w, source, y, x);
      }
    }
    [[gnu::always_inline]] static inline void run(const GroupedWork<T>& w) {
      constexpr int many = B == 16 ? 14 : 8, few = 7;
      const bool fits = (w.width + many - 1) / many * many <= (w.width + few - 1) / few * few;
      if (w.meeting == Meeting::even) return all<many, Meeting::even>(w);
      if (w.meeting == Meeting::odd) return all<many, Meeting::odd>(w);
      if (w.meeting == Meeting::step_1)
        return fits ? all<many, Meeting::step_1>(w) : all<few, Meeting::step_1>(w);
      return fits ? all<many, Meeting::step_2>(w) : all<few, Meeting::step_2>(w);
    }
  };
};

}  // namespace ringtrain::compute::onednn
