#include "compute/onednn/kernels/depthwise.hpp"

#include <algorithm>
#include <vector>

#include "compute/onednn/isa.hpp"

namespace ringtrain::compute::onednn {
namespace {

// One tap of a line: of result t, the pixel t * step + shift of a row of the source.
struct Tap {
  int shift;
  int column;  // of the filter
};

// Results in a row that are sums over the same taps: of a forward step all, of an input gradient
// those of one phase.
struct Line {
  int first, apart, results;  // pixels of the first result, and from one to the next
  int step;                   // pixels of the source, from result to result
  std::vector<Tap> taps;
  int safe_first, safe_end;  // results whose taps all lie in the source
};

int divided_up(int value, int divisor) { return (value + divisor - 1) / divisor; }

Line line_of(int first, int apart, int results, int step, std::vector<Tap> taps, int width) {
  Line line{first, apart, results, step, std::move(taps), 0, 0};
  if (line.taps.empty()) return line;
  const auto [least, most] = std::ranges::minmax_element(line.taps, {}, &Tap::shift);
  line.safe_first = std::min(results, least->shift < 0 ? divided_up(-least->shift, step) : 0);
  const int last = width - 1 - most->shift;
  line.safe_end = std::max(line.safe_first, last < 0 ? 0 : std::min(results, last / step + 1));
  return line;
}

Line forward_line(const Window& w, const Shape& x, const Shape& y) {
  std::vector<Tap> taps;
  for (int column = 0; column < w.width; ++column) taps.push_back({column - w.left, column});
  return line_of(0, 1, y.width, w.stride_x, std::move(taps), x.width);
}

// Of an input gradient: pixels first, first + stride, ...
Line phase_line(int first, const Window& w, const Shape& x, const Shape& y) {
  std::vector<Tap> taps;
  for (int column = (first + w.left) % w.stride_x; column < w.width; column += w.stride_x)
    taps.push_back({(first + w.left - column) / w.stride_x, column});
  return line_of(first, w.stride_x, divided_up(x.width - first, w.stride_x), 1, std::move(taps),
                 y.width);
}

// The rows of a filter that meet the source, `count` of them, and where.
struct Rows {
  int first, step, count;
  std::ptrdiff_t pixel, pixel_step;  // of the source
};

Rows forward_rows(int row, const Window& w, const Shape& x) {
  const int top = row * w.stride_y - w.top, first = std::max(0, -top),
            end = std::min(w.height, x.height - top);
  return {first, 1, std::max(0, end - first), std::ptrdiff_t(top + first) * x.width, x.width};
}

Rows gradient_rows(int row, const Window& w, const Shape& y) {
  const int at = row + w.top;
  int first = at % w.stride_y;  // meets row (at - first) / stride of y, the next one the row above
  if (const int below = (at - first) / w.stride_y - (y.height - 1); below > 0)
    first += below * w.stride_y;
  const int meets = (at - first) / w.stride_y;
  const int count = first >= w.height ? 0 : (w.height - 1 - first) / w.stride_y + 1;
  return {first, w.stride_y, std::max(0, std::min(count, meets + 1)),
          std::ptrdiff_t(meets) * y.width, -y.width};
}

// One row of results of one block of channels of an image.
template <class T>
struct LineWork {
  Pixels<T> source, result;
  Rows rows;
  const Line* line;
  std::size_t first;  // pixel of the row of results
  int width, columns;
  const float *weights, *bias;  // a block of channels each tap; bias may be null
};

template <int B, class T>
struct SumOfTaps {
  [[gnu::always_inline]] static inline Vec<B> weight(const LineWork<T>& w, int row, const Tap& t) {
    return load<B>(w.weights + ((w.rows.first + row * w.rows.step) * w.columns + t.column) * B);
  }
  [[gnu::always_inline]] static inline T* result(const LineWork<T>& w, int t) {
    return w.result.at(w.first + w.line->first + std::size_t(t) * w.line->apart);
  }
  // `count` results from t on.
  template <int count>
  [[gnu::always_inline]] static inline void tile(const LineWork<T>& w, int t) {
    const std::size_t apart = w.line->step * w.source.step;
    Vec<B> sum[count];
    for (int i = 0; i < count; ++i) sum[i] = w.bias ? load<B>(w.bias) : Vec<B>{};
    for (int row = 0; row < w.rows.count; ++row)
      for (const Tap& tap : w.line->taps) {
        const T* from =
            w.source.at(w.rows.pixel + row * w.rows.pixel_step + t * w.line->step + tap.shift);
        const Vec<B> weight_of = weight(w, row, tap);
        for (int i = 0; i < count; ++i) sum[i] += weight_of * load<B>(from + i * apart);
      }
    for (int i = 0; i < count; ++i) store<B>(result(w, t + i), sum[i]);
  }
  [[gnu::always_inline]] static inline void edge(const LineWork<T>& w, int t) {
    Vec<B> sum = w.bias ? load<B>(w.bias) : Vec<B>{};
    for (int row = 0; row < w.rows.count; ++row)
      for (const Tap& tap : w.line->taps) {
        const int at = t * w.line->step + tap.shift;
        if (at < 0 || at >= w.width) continue;
        sum +=
            weight(w, row, tap) * load<B>(w.source.at(w.rows.pixel + row * w.rows.pixel_step + at));
      }
    store<B>(result(w, t), sum);
  }
  [[gnu::always_inline]] static inline void run(const LineWork<T>& w) {
    int t = 0;
    for (; t < w.line->safe_first; ++t) edge(w, t);
    for (; t + 8 <= w.line->safe_end; t += 8) tile<8>(w, t);
    for (; t + 2 <= w.line->safe_end; t += 2) tile<2>(w, t);
    for (; t < w.line->safe_end; ++t) tile<1>(w, t);
    for (; t < w.line->results; ++t) edge(w, t);
  }
};

// What a row of dy adds to the gradients of one block of channels.
template <class T>
struct GradientWork {
  Pixels<T> x, dy;
  Window window;
  Rows rows;           // of the filter, and of x
  std::size_t first;   // pixel of the row of dy
  int x_width, width;  // of x and dy
  float* sums;         // of each tap, then of the bias
};

template <int B, class T>
struct SumOfPixels {
  [[gnu::always_inline]] static inline void add(float* to, Vec<B> more) {
    store<B>(to, load<B>(to) + more);
  }
  [[gnu::always_inline]] static inline Vec<B> tap(const GradientWork<T>& w, std::ptrdiff_t row,
                                                  int shift) {
    const int step = w.window.stride_x, first = shift < 0 ? (step - 1 - shift) / step : 0,
              last = w.x_width - 1 - shift, end = last < 0 ? 0 : std::min(w.width, last / step + 1);
    const auto product = [&](int t) __attribute__((always_inline)) {
      return load<B>(w.dy.at(w.first + t)) * load<B>(w.x.at(row + t * step + shift));
    };
    Vec<B> a{}, b{}, c{}, d{};
    int t = first;
    for (; t + 4 <= end; t += 4) {
      a += product(t);
      b += product(t + 1);
      c += product(t + 2);
      d += product(t + 3);
    }
    for (; t < end; ++t) a += product(t);
    return (a + b) + (c + d);
  }
  [[gnu::always_inline]] static inline void run(const GradientWork<T>& w) {
    for (int row = 0; row < w.rows.count; ++row)
      for (int column = 0; column < w.window.width; ++column)
        add(w.sums + ((w.rows.first + row) * w.window.width + column) * B,
            tap(w, w.rows.pixel + row * w.rows.pixel_step, column - w.window.left));
    Vec<B> bias{};
    for (int t = 0; t < w.width; ++t) bias += load<B>(w.dy.at(w.first + t));
    add(w.sums + w.window.height * w.window.width * B, bias);
  }
};

// The filters and biases in scratch memory: of each block of channels its taps, then its bias.
class BlockedFilters {
 public:
  BlockedFilters(const Window& w, const Tensor& t, const float* weights, const float* bias,
                 Planner& planner)
      : taps_(w.height * w.width),
        channels_(t.shape.channels),
        block_(t.block),
        weights_(weights),
        bias_(bias),
        copy_(planner.scratch(sizeof(float) * (taps_ + 1) * t.padded_channels())) {}
  /// `same`: one filter for all channels.
  BlockedFilters(const Window& w, const Tensor& t, std::vector<float> same, Planner& planner)
      : BlockedFilters(w, t, nullptr, nullptr, planner) {
    same_ = std::move(same);
  }
  void fill(const Frame& frame) const {
    float* to = copy_.in(frame);
    for (int first = 0; first < channels_; first += block_)
      for (int tap = 0; tap <= taps_; ++tap)
        for (int c = first; c < first + block_; ++c) *to++ = c < channels_ ? value(c, tap) : 0;
  }
  const float* weights(const Frame& frame, std::size_t of_channels) const {
    return copy_.in(frame) + of_channels * (taps_ + 1) * block_;
  }
  const float* bias(const Frame& frame, std::size_t of_channels) const {
    return bias_ ? weights(frame, of_channels) + taps_ * block_ : nullptr;
  }

 private:
  float value(int channel, int tap) const {
    if (tap == taps_) return bias_ ? bias_[channel] : 0;
    return weights_ ? weights_[std::size_t(channel) * taps_ + tap] : same_[tap];
  }

  int taps_, channels_, block_;
  const float *weights_, *bias_;
  std::vector<float> same_;
  Scratch copy_;
};

// Results of `result` from `source`: `rows_of(row)` says which rows of the source.
template <class RowsOf>
Action plan_lines(const Window& window, const Tensor& source, const Tensor& result,
                  std::vector<Line> lines, const BlockedFilters& filters, Planner& planner,
                  RowsOf rows_of) {
  planner.add_implementation("depthwise");
  return with_type(source.element, [&]<class T>(T) -> Action {
    return [=, lines = std::move(lines), threads = planner.threads(),
            sum = pick<SumOfTaps, T>(planner.isa())](const Frame& frame) {
      filters.fill(frame);
      const std::size_t height = result.shape.height, blocks = result.blocks();
      for_each_item(threads, result.shape.batch * blocks * height, [&](std::size_t item) {
        const std::size_t n = item / height / blocks, block = item / height % blocks,
                          row = item % height;
        LineWork<T> work{source.run<T>(n, block),
                         result.run<T>(n, block),
                         rows_of(static_cast<int>(row)),
                         nullptr,
                         row * result.shape.width,
                         source.shape.width,
                         window.width,
                         filters.weights(frame, block),
                         filters.bias(frame, block)};
        for (const Line& line : lines) {
          work.line = &line;
          sum(work);
        }
      });
    };
  });
}

// The gradients by dx of what a window with these filters made of x.
Action plan_transposed(const Window& w, const Tensor& dy, const Tensor& dx,
                       const BlockedFilters& filters, Planner& planner) {
  std::vector<Line> lines;
  for (int first = 0; first < std::min(w.stride_x, dx.shape.width); ++first)
    lines.push_back(phase_line(first, w, dx.shape, dy.shape));
  return plan_lines(w, dy, dx, std::move(lines), filters, planner,
                    [w, shape = dy.shape](int row) { return gradient_rows(row, w, shape); });
}
Action plan_sliding(const Window& w, const Tensor& x, const Tensor& y,
                    const BlockedFilters& filters, Planner& planner) {
  return plan_lines(w, x, y, {forward_line(w, x.shape, y.shape)}, filters, planner,
                    [w, shape = x.shape](int row) { return forward_rows(row, w, shape); });
}

// Images whose gradients one item sums, so that there is work for many threads and the sums of all
// items still fit the caches.
constexpr std::size_t most_sums = 32;

}  // namespace

bool is_depthwise(const ConvolutionShape& window, const Tensor& x, const Tensor& y) {
  return window.groups > 1 && window.dilation == 1 && window.groups == x.shape.channels &&
         window.groups == y.shape.channels;
}

Action plan_depthwise(const ConvolutionForward& step, const Tensor& x, const Tensor& y,
                      Planner& planner) {
  const BlockedFilters filters(step.window, x, planner.parameters(step.w),
                               planner.parameters(step.b), planner);
  return plan_sliding(step.window, x, y, filters, planner);
}

Action plan_depthwise(const ConvolutionInputGradient& step, const Tensor& dy, const Tensor& dx,
                      Planner& planner) {
  const BlockedFilters filters(step.window, dx, planner.parameters(step.w), nullptr, planner);
  return plan_transposed(step.window, dy, dx, filters, planner);
}

template <>
Action plan(const FilterForward& step, Planner& planner) {
  const Tensor x = planner.tensor(step.x);
  return plan_sliding(step.window, x, planner.tensor(step.y),
                      BlockedFilters(step.window, x, step.taps, planner), planner);
}

template <>
Action plan(const FilterBackward& step, Planner& planner) {
  const Tensor dx = planner.tensor(step.dx);
  return plan_transposed(step.window, planner.tensor(step.dy), dx,
                         BlockedFilters(step.window, dx, step.taps, planner), planner);
}

Action plan_depthwise(const ConvolutionWeightGradient& step, const Tensor& x, const Tensor& dy,
                      Planner& planner) {
  const Window w = step.window;
  const std::size_t taps = std::size_t(w.height) * w.width, blocks = x.blocks(), block = x.block,
                    parts = std::min<std::size_t>(x.shape.batch, most_sums);
  const Scratch scratch = planner.scratch(sizeof(float) * parts * blocks * (taps + 1) * block);
  planner.add_implementation("depthwise");
  return with_type(x.element, [&]<class T>(T) -> Action {
    return [=, threads = planner.threads(), weights = planner.gradients(step.w),
            biases = planner.gradients(step.b),
            sum = pick<SumOfPixels, T>(planner.isa())](const Frame& frame) {
      const auto sums_of = [&](std::size_t part, std::size_t of_channels) {
        return scratch.in(frame) + (part * blocks + of_channels) * (taps + 1) * block;
      };
      for_each_item(threads, parts * blocks, [&](std::size_t item) {
        float* sums = sums_of(item / blocks, item % blocks);
        std::fill_n(sums, (taps + 1) * block, 0.f);
        for (int n = static_cast<int>(item / blocks); n < x.shape.batch; n += int(parts))
          for (int row = 0; row < dy.shape.height; ++row)
            sum({x.run<T>(n, item % blocks), dy.run<T>(n, item % blocks), w,
                 forward_rows(row, w, x.shape), std::size_t(row) * dy.shape.width, x.shape.width,
                 dy.shape.width, sums});
      });
      for_each_item(threads, x.shape.channels, [&](std::size_t c) {
        for (std::size_t tap = 0; tap <= taps; ++tap) {
          double total = 0;
          for (std::size_t part = 0; part < parts; ++part)
            total += sums_of(part, c / block)[tap * block + c % block];
          if (tap < taps)
            weights[c * taps + tap] = static_cast<float>(total);
          else if (biases)
            biases[c] = static_cast<float>(total);
        }
      });
    };
  });
}

}  // namespace ringtrain::compute::onednn
