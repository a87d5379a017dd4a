#pragma once
#include "compute/onednn/isa.hpp"
#include "compute/onednn/kernels/depthwise/geometry.hpp"

namespace ringtrain::compute::onednn::depthwise {

/// Rows of one block of channels of an image, as HeldRows says: read once each, in their order.
template <int B, class T>
class RowReader {
 public:
  /// `copies` has room for them.
  [[gnu::always_inline]] inline RowReader(const HeldRows& rows, Pixels<T> source, float* copies)
      : rows_(rows), source_(source), pitch_(std::size_t(rows.pitch()) * B), zeros_(copies) {
    if constexpr (std::is_same_v<T, float>)
      direct_ = rows.left == 0 && rows.right == 0 && source.step == B;
    copies_ = zeros_ + pitch_;
    if constexpr (std::is_same_v<T, float>)
      if (direct_) copies_ = source.first;
    mask_ = direct_ ? -1 : rows.count - 1;
  }
  /// Rows from `first` on, which is in the image, to `last`.
  [[gnu::always_inline]] inline void read(int first, int last) {
    if (direct_) return;
    for (next_ = std::max(next_, first); next_ <= last; ++next_) copy(next_);
  }
  /// A row that was read, its zeros first.
  [[gnu::always_inline]] inline const float* operator[](int row) const {
    return copies_ + (row & mask_) * pitch_;
  }
  /// To be called before or_zeros().
  [[gnu::always_inline]] inline void make_zeros() {
    for (std::size_t i = 0; i < pitch_; i += B) store<B>(zeros_ + i, Vec<B>{});
  }
  /// Zeros where it is outside of the image.
  [[gnu::always_inline]] inline const float* or_zeros(int row) const {
    return row < 0 || row >= rows_.height ? zeros_ : (*this)[row];
  }

 private:
  // Asks for the next row: the CPU has none to fetch while results of this one are made. Locals
  // spare the loops a look at what their stores might have changed.
  [[gnu::always_inline]] inline void copy(int row) const {
    float* to = copies_ + (row & mask_) * pitch_;
    const T* from = source_.at(std::size_t(row) * rows_.width);
    const std::size_t step = source_.step, next = rows_.width * step;
    const int left = rows_.left, width = rows_.width, right = rows_.right;
    for (int i = 0; i < left; ++i, to += B) store<B>(to, Vec<B>{});
    for (int i = 0; i < width; ++i, to += B, from += step) {
      __builtin_prefetch(from + next);
      store<B>(to, load<B>(from));
    }
    for (int i = 0; i < right; ++i, to += B) store<B>(to, Vec<B>{});
  }

  const HeldRows& rows_;
  Pixels<T> source_;
  std::size_t pitch_;
  float *zeros_, *copies_;
  int mask_, next_ = 0;
  bool direct_ = false;
};

/// Rows of results of one block of channels of an image.
template <class T>
struct ResultWork {
  const Sliding* sliding;
  Pixels<T> source, result;
  int first, end;               ///< rows of results
  const float *weights, *bias;  ///< a block of channels each tap; bias may be null
  float* held;                  ///< scratch memory
};

template <int B, class T>
struct SumOfTaps {
  // A row of results of one line.
  struct Row {
    const RowReader<B, T>* source;
    Rows rows;
    const Line* line;
    Pixels<T> result;
    int step, columns;
    const float *weights, *bias;
  };
  // `count` results from t on. `step` and `taps` are those of the row, or 0.
  template <int step, int taps, int count>
  [[gnu::always_inline]] static inline void tile(const Row& r, int t) {
    const Line& line = *r.line;
    const std::size_t apart = (step > 0 ? step : r.step) * B;
    const std::ptrdiff_t next_weight = line.column_step * B;
    const int all_taps = taps > 0 ? taps : line.taps;
    Vec<B> sum[count];
#pragma GCC unroll 16
    for (int i = 0; i < count; ++i) sum[i] = r.bias ? load<B>(r.bias) : Vec<B>{};
    for (int row = 0; row < r.rows.count; ++row) {
      const float* pixel =
          (*r.source)[r.rows.source + row * r.rows.source_step] + t * apart + line.shift * B;
      const float* weights =
          r.weights + ((r.rows.first + row * r.rows.step) * r.columns + line.column) * B;
#pragma GCC unroll 8
      for (int tap = 0; tap < all_taps; ++tap, pixel += B, weights += next_weight) {
        const Vec<B> weight = load<B>(weights);
#pragma GCC unroll 16
        for (int i = 0; i < count; ++i) sum[i] += weight * load<B>(pixel + i * apart);
      }
    }
    T* to = r.result.at(line.first + std::size_t(t) * line.apart);
    const std::size_t next = line.apart * r.result.step;
#pragma GCC unroll 16
    for (int i = 0; i < count; ++i, to += next) store<B>(to, sum[i]);
  }
  // Of at least 7 results. What is over is made with some of those before it once more.
  template <int step, int taps>
  [[gnu::always_inline]] static inline void tiles(const Row& r) {
    const int results = r.line->results;
    int t = 0;
    if constexpr (B == 16 && taps > 0)  // of whose vectors a CPU has 32 registers
      for (; t + 14 <= results; t += 14) tile<step, taps, 14>(r, t);
    for (; t < results; t += 7) tile<step, taps, 7>(r, std::min(t, results - 7));
  }
  [[gnu::always_inline]] static inline void all(const Row& r) {
    const int results = r.line->results, taps = r.line->taps;
    if (results < 7 || r.step > 2) {
      for (int t = 0; t < results; ++t) tile<0, 0, 1>(r, t);
    } else if (r.step == 2) {
      tiles<2, 0>(r);
    } else if (taps == 3) {
      tiles<1, 3>(r);
    } else if (taps == 5) {
      tiles<1, 5>(r);
    } else if (taps == 7) {
      tiles<1, 7>(r);
    } else {
      tiles<1, 0>(r);
    }
  }
  [[gnu::always_inline]] static inline void run(const ResultWork<T>& w) {
    const Sliding& s = *w.sliding;
    RowReader<B, T> source(s.source(), w.source, w.held);
    for (int row = w.first; row < w.end; ++row) {
      const Rows rows = s.rows_of(row);
      if (rows.count > 0) source.read(rows.least_source(), rows.most_source());
      Pixels<T> result = w.result;
      result.first = w.result.at(std::size_t(row) * s.width());
      for (const Line& line : s.lines())
        all({&source, rows, &line, result, s.step(), s.columns(), w.weights, w.bias});
    }
  }
};

/// What an image adds to the gradients of one block of channels.
template <class T>
struct GradientWork {
  const Correlation* of;
  Pixels<T> x, dy;
  float* sums;              ///< of each tap, then of the bias
  float *held_x, *held_dy;  ///< scratch memory
};

template <int B, class T>
struct SumOfPixels {
  struct Band {
    const Correlation* of;
    const RowReader<B, T>*x, *dy;
    int first, end;  // rows of dy
    float* sums;
  };
  [[gnu::always_inline]] static inline void add(float* to, Vec<B> more) {
    store<B>(to, load<B>(to) + more);
  }
  // What a band adds to `rows` x `columns` taps from (k, j) on, by turns to `turns` sums of each,
  // so that no sum waits for itself.
  template <int rows, int columns, int turns = 1>
  [[gnu::always_inline]] static inline void patch(const Band& b, int k, int j) {
    const Window& w = b.of->window;
    const std::size_t step = std::size_t(w.stride_x) * B, width = b.of->dy.width;
    Vec<B> sum[turns][rows][columns] = {};
    for (int y = b.first; y < b.end; ++y) {
      const int top = y * w.stride_y - w.top + k;
      if (top + rows <= 0 || top >= b.of->x.height) continue;
      const float *dy = (*b.dy)[y], *x[rows];
#pragma GCC unroll 4
      for (int r = 0; r < rows; ++r) x[r] = b.x->or_zeros(top + r) + j * B;
      std::size_t t = 0;
      const auto products = [&](int turn, std::size_t at) __attribute__((always_inline)) {
        const Vec<B> slope = load<B>(dy + at * B);
#pragma GCC unroll 4
        for (int r = 0; r < rows; ++r)
#pragma GCC unroll 8
          for (int c = 0; c < columns; ++c)
            sum[turn][r][c] += slope * load<B>(x[r] + at * step + c * B);
      };
      for (; t + turns <= width; t += turns)
#pragma GCC unroll 4
        for (int turn = 0; turn < turns; ++turn) products(turn, t + turn);
      for (; t < width; ++t) products(0, t);
    }
    float* to = b.sums + (k * w.width + j) * B;
    const std::size_t row_of_taps = std::size_t(w.width) * B;
#pragma GCC unroll 4
    for (int r = 0; r < rows; ++r, to += row_of_taps)
#pragma GCC unroll 8
      for (int c = 0; c < columns; ++c) {
#pragma GCC unroll 4
        for (int turn = 1; turn < turns; ++turn) sum[0][r][c] += sum[turn][r][c];
        add(to + c * B, sum[0][r][c]);
      }
  }
  // Taps of `columns` columns from j on, `rows` rows at a time.
  template <int rows, int columns>
  [[gnu::always_inline]] static inline void strip(const Band& b, int j) {
    int k = 0;
    for (; k + rows <= b.of->window.height; k += rows) patch<rows, columns>(b, k, j);
    for (; k < b.of->window.height; ++k) patch<1, columns, columns == 1 ? 4 : 1>(b, k, j);
  }
  [[gnu::always_inline]] static inline void add_band(const Band& b) {
    const int columns = b.of->window.width;
    int j = 0;
    for (; j + 7 <= columns; j += 7) strip<2, 7>(b, j);
    for (; j + 5 <= columns; j += 5) strip<2, 5>(b, j);
    for (; j + 3 <= columns; j += 3) strip<3, 3>(b, j);
    for (; j < columns; ++j) strip<4, 1>(b, j);
    if (!b.of->bias) return;
    Vec<B> bias{};
    for (int y = b.first; y < b.end; ++y) {
      const float* dy = (*b.dy)[y];
      for (int t = 0; t < b.of->dy.width; ++t) bias += load<B>(dy + t * B);
    }
    add(b.sums + b.of->window.height * columns * B, bias);
  }
  [[gnu::always_inline]] static inline void run(const GradientWork<T>& w) {
    const Correlation& of = *w.of;
    RowReader<B, T> x(of.x, w.x, w.held_x), dy(of.dy, w.dy, w.held_dy);
    x.make_zeros();
    for (int first = 0; first < of.dy.height; first += of.band) {
      const int end = std::min(first + of.band, of.dy.height),
                top = first * of.window.stride_y - of.window.top,
                below = (end - 1) * of.window.stride_y - of.window.top + of.window.height;
      x.read(std::max(0, top), std::min(below, of.x.height) - 1);
      dy.read(first, end - 1);
      add_band({&of, &x, &dy, first, end, w.sums});
    }
  }
};

}  // namespace ringtrain::compute::onednn::depthwise
