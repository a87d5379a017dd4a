#include "compute/onednn/kernels/grouped/grouped.hpp"

#include <algorithm>
#include <optional>

#include "compute/onednn/kernels/grouped/sums.hpp"
#include "compute/onednn/kernels/grouped/tiles.hpp"

namespace ringtrain::compute::onednn {
namespace {

// What a row of scratch memory holds past the pixels that results need, for the last tile.
constexpr int longest_tile = 14;

// Weights and biases in scratch memory, as tiles.hpp wants them: of each block of channels its
// weights, then its bias.
class GroupedFilters {
 public:
  enum class Of { results, sources };

  /// `turned`: from the last to the first tap.
  GroupedFilters(const ConvolutionShape& w, const Tensor& t, const float* weights,
                 const float* bias, Of lanes, bool turned, Planner& planner)
      : taps_(w.height * w.width),
        channels_(t.shape.channels),
        group_(t.shape.channels / w.groups),
        block_(t.block),
        turned_(turned),
        lanes_(lanes),
        weights_(weights),
        bias_(bias),
        copy_(planner.scratch(sizeof(float) * size() * t.blocks())) {}
  /// Floats of a block of channels.
  std::size_t size() const { return std::size_t(taps_ * group_ + 1) * block_; }
  void fill(const Frame& frame) const {
    float* to = copy_.in(frame);
    for (int first = 0; first < channels_; first += block_) {
      for (int row = 0; row < taps_; row += taps_of_row)
        for (int c = 0; c < group_; ++c)
          for (int column = 0; column < taps_of_row; ++column)
            for (int lane = first; lane < first + block_; ++lane)
              *to++ = lane < channels_ ? weight(lane, c, row + column) : 0;
      for (int lane = first; lane < first + block_; ++lane)
        *to++ = bias_ && lane < channels_ ? bias_[lane] : 0;
    }
  }
  const float* weights(const Frame& frame, std::size_t of_channels) const {
    return copy_.in(frame) + of_channels * size();
  }
  const float* bias(const Frame& frame, std::size_t of_channels) const {
    return bias_ ? weights(frame, of_channels + 1) - block_ : nullptr;
  }

 private:
  // By which lane `lane` takes channel `c` of its group.
  float weight(int lane, int c, int tap) const {
    if (turned_) tap = taps_ - 1 - tap;
    const bool forward = lanes_ == Of::results;
    const std::size_t out = forward ? lane : lane / group_ * group_ + c;
    return weights_[(out * taps_ + tap) * group_ + (forward ? c : lane % group_)];
  }

  int taps_, channels_, group_, block_;
  bool turned_;
  Of lanes_;
  const float *weights_, *bias_;
  Scratch copy_;
};

// Scratch memory of each thread, and a pixel past it, which spread() may read.
class PerThread {
 public:
  PerThread(std::size_t floats, Planner& planner)
      : floats_((floats + 31) / 16 * 16),
        place_(planner.scratch(sizeof(float) * floats_ * planner.threads())) {}
  float* in(const Frame& frame) const { return place_.in(frame) + this_thread() * floats_; }

 private:
  std::size_t floats_;
  Scratch place_;
};

// f.operator()<G>() for groups of G channels.
template <class F>
auto with_group(int channels, const F& f) {
  return channels == 4 ? f.template operator()<4>() : f.template operator()<8>();
}

// How rows of results meet rows of the source.
struct RowsMet {
  Meeting meeting;
  int step, top, before;  // zeros in front of a row
  int columns(const Tensor& source, const Tensor& result) const {
    const int met = (result.shape.width + longest_tile) * step + taps_of_row;
    return before + std::max(source.shape.width + 2, met);
  }
};

// Rows that one item computes: few where there are few blocks of channels. Bits do not depend on
// it.
int rows_of_item(const Tensor& result, int threads) {
  const int blocks = result.shape.batch * result.blocks(), height = result.shape.height;
  return blocks >= 4 * threads ? height : std::min(height, 8);
}

Action plan_rows(const ConvolutionShape& window, const Tensor& source, const Tensor& result,
                 const RowsMet& rows, const GroupedFilters& filters, Planner& planner) {
  const int group = source.shape.channels / window.groups, columns = rows.columns(source, result);
  const PerThread scratch(std::size_t(window.height) * columns * source.block, planner);
  planner.add_implementation("grouped");
  return with_type(source.element, [&]<class T>(T) -> Action {
    const auto kernel = with_group(
        group, [&]<int G>() { return pick<Grouped<G>::template Rows, T>(planner.isa()); });
    const int threads = planner.threads(), height = result.shape.height;
    return [=, of_item = rows_of_item(result, threads)](const Frame& frame) {
      filters.fill(frame);
      const std::size_t parts = (height + of_item - 1) / of_item, blocks = result.blocks();
      for_each_item(threads, result.shape.batch * blocks * parts, [&](std::size_t item) {
        const std::size_t n = item / parts / blocks, block = item / parts % blocks;
        const int first = static_cast<int>(item % parts) * of_item;
        kernel({.source = source.run<T>(n, block),
                .result = result.run<T>(n, block),
                .source_width = source.shape.width,
                .source_height = source.shape.height,
                .width = result.shape.width,
                .first = first,
                .end = std::min(height, first + of_item),
                .taps = window.height,
                .step = rows.step,
                .top = rows.top,
                .meeting = rows.meeting,
                .before = rows.before,
                .columns = columns,
                .weights = filters.weights(frame, block),
                .bias = filters.bias(frame, block),
                .rows = scratch.in(frame)});
      });
    };
  });
}

Meeting sliding_by(int step) { return step == 1 ? Meeting::step_1 : Meeting::step_2; }

// Images whose gradients one item sums, so that there is work for many threads and the sums of all
// items still fit the caches.
constexpr std::size_t most_sums = 32;
// Floats of a strip of rows of x and dy: they stay in the first-level cache.
constexpr std::size_t most_strip = 6144;

// The weight gradients of each part of the images and each block of channels, in the order of
// sums.hpp, in scratch memory.
class GradientSums {
 public:
  GradientSums(const ConvolutionShape& w, const Tensor& x, const Tensor& dy, Planner& planner)
      : x_(x),
        dy_(dy),
        window_(w),
        group_(x.shape.channels / w.groups),
        columns_(w.left + x.shape.width + 2),
        strip_(dy.shape.height),
        parts_(std::min<std::size_t>(x.shape.batch, most_sums)),
        blocks_(x.blocks()),
        sums_(planner.scratch(sizeof(float) * parts_ * blocks_ * size())) {
    while (strip_ > 1 && floats_of_x() + floats_of_dy() > most_strip) --strip_;
    work_.emplace(floats_of_x() + floats_of_dy(), planner);
  }
  std::size_t items() const { return parts_ * blocks_; }
  template <class T, class Kernel>
  void add_up(const Frame& frame, std::size_t item, Kernel kernel) const {
    const std::size_t part = item / blocks_, block = item % blocks_;
    float *const sums = sums_of(frame, part, block), *const rows = work_->in(frame);
    std::fill_n(sums, size(), 0.f);
    for (std::size_t n = part; n < std::size_t(x_.shape.batch); n += parts_)
      kernel({.x = x_.run<T>(n, block),
              .dy = dy_.run<T>(n, block),
              .x_width = x_.shape.width,
              .x_height = x_.shape.height,
              .width = dy_.shape.width,
              .height = dy_.shape.height,
              .taps = window_.height,
              .step = window_.stride_x,
              .top = window_.top,
              .before = window_.left,
              .columns = columns_,
              .strip = strip_,
              .rows = rows,
              .dy_rows = rows + floats_of_x(),
              .sums = sums});
  }
  /// Writes a channel's gradients; that of the bias where `bias` is not null.
  void write(const Frame& frame, int channel, float* weights, float* bias) const {
    for (int tap = 0; tap < taps(); ++tap)
      for (int in = 0; in < group_; ++in)
        *weights++ = total(frame, channel,
                           (tap / taps_of_row * group_ + in) * taps_of_row + tap % taps_of_row);
    if (bias) *bias = total(frame, channel, taps() * group_);
  }
  /// Weights of a channel.
  std::size_t weights() const { return std::size_t(taps()) * group_; }

 private:
  int taps() const { return window_.height * window_.width; }
  std::size_t size() const { return (weights() + 1) * x_.block; }
  // Of a strip, widened.
  std::size_t floats_of_x() const {
    return std::size_t((strip_ - 1) * window_.stride_y + window_.height) * columns_ * x_.block;
  }
  std::size_t floats_of_dy() const {
    return std::size_t(strip_) * (dy_.shape.width + 4) * x_.block;
  }
  float* sums_of(const Frame& frame, std::size_t part, std::size_t block) const {
    return sums_.in(frame) + (part * blocks_ + block) * size();
  }
  float total(const Frame& frame, int channel, int at) const {
    double sum = 0;
    for (std::size_t part = 0; part < parts_; ++part)
      sum += sums_of(frame, part, channel / x_.block)[at * x_.block + channel % x_.block];
    return static_cast<float>(sum);
  }

  Tensor x_, dy_;
  ConvolutionShape window_;
  int group_, columns_, strip_;
  std::size_t parts_, blocks_;
  Scratch sums_;
  std::optional<PerThread> work_;
};

}  // namespace

bool is_grouped(const ConvolutionShape& w, const Tensor& x, const Tensor& y) {
  const int channels = x.shape.channels, group = channels / w.groups;
  const bool lies_in_blocks = channels == y.shape.channels && (group == 4 || group == 8) &&
                              x.block >= group && y.block == x.block;
  return w.groups > 1 && w.dilation == 1 && lies_in_blocks && w.width == taps_of_row &&
         w.stride_y == w.stride_x && w.stride_x <= 2 && w.top < w.height && w.left < w.width;
}

bool has_grouped_gradients(const ConvolutionShape& w, const Tensor& x, const Tensor& y) {
  const bool lopsided = w.stride_x == 2 && w.left == 0;
  return is_grouped(w, x, y) && (x.shape.channels / w.groups < x.block || lopsided);
}

Action plan_grouped(const ConvolutionForward& step, const Tensor& x, const Tensor& y,
                    Planner& planner) {
  const ConvolutionShape& w = step.window;
  const GroupedFilters filters(w, x, planner.parameters(step.w), planner.parameters(step.b),
                               GroupedFilters::Of::results, false, planner);
  return plan_rows(w, x, y, {sliding_by(w.stride_x), w.stride_y, w.top, w.left}, filters, planner);
}

// With a step of 1 it is the convolution of dy with the filter turned around.
Action plan_grouped(const ConvolutionInputGradient& step, const Tensor& dy, const Tensor& dx,
                    Planner& planner) {
  const ConvolutionShape& w = step.window;
  const bool turned = w.stride_x == 1;
  const GroupedFilters filters(w, dx, planner.parameters(step.w), nullptr,
                               GroupedFilters::Of::sources, turned, planner);
  const RowsMet rows = turned
                           ? RowsMet{Meeting::step_1, 1, w.height - 1 - w.top, w.width - 1 - w.left}
                           : RowsMet{w.left % 2 == 0 ? Meeting::even : Meeting::odd, w.stride_y,
                                     w.top, 1 - w.left / 2};
  return plan_rows(w, dy, dx, rows, filters, planner);
}

Action plan_grouped(const ConvolutionWeightGradient& step, const Tensor& x, const Tensor& dy,
                    Planner& planner) {
  const GradientSums sums(step.window, x, dy, planner);
  planner.add_implementation("grouped");
  return with_type(x.element, [&]<class T>(T) -> Action {
    const auto kernel = with_group(x.shape.channels / step.window.groups, [&]<int G>() {
      return pick<GroupedGradient<G>::template Sums, T>(planner.isa());
    });
    return [=, channels = x.shape.channels, threads = planner.threads(),
            weights = planner.gradients(step.w),
            bias = planner.gradients(step.b)](const Frame& frame) {
      for_each_item(threads, sums.items(),
                    [&](std::size_t item) { sums.add_up<T>(frame, item, kernel); });
      for_each_item(threads, channels, [&](std::size_t c) {
        sums.write(frame, static_cast<int>(c), weights + c * sums.weights(),
                   bias ? bias + c : nullptr);
      });
    };
  });
}

}  // namespace ringtrain::compute::onednn
