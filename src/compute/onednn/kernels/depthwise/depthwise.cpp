#include "compute/onednn/kernels/depthwise/depthwise.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include "compute/onednn/kernels/depthwise/kernels.hpp"

namespace ringtrain::compute::onednn {
namespace {

using depthwise::Correlation;
using depthwise::divided_up;
using depthwise::Sliding;

// Items of a step are as many as these where the shapes allow it, so that there is work for many
// threads. They never depend on the number of threads.
constexpr int enough_items = 64;

// Scratch memory of a thread.
class OfThread {
 public:
  OfThread(std::size_t floats, Planner& planner)
      : floats_(floats), all_(planner.scratch(sizeof(float) * floats * planner.threads())) {}
  float* in(const Frame& frame) const { return all_.in(frame) + this_thread() * floats_; }

 private:
  std::size_t floats_;
  Scratch all_;
};

// The filters and biases in scratch memory: of each block of channels its taps, then its bias.
class BlockedFilters {
 public:
  BlockedFilters(const Window& w, const Tensor& t, const float* weights, const float* bias,
                 Planner& planner)
      : taps_(w.height * w.width),
        channels_(t.shape.channels),
        block_(t.block),
        threads_(planner.threads()),
        weights_(weights),
        bias_(bias),
        copy_(planner.scratch(sizeof(float) * (taps_ + 1) * t.padded_channels())) {}
  /// `same`: one filter for all channels.
  BlockedFilters(const Window& w, const Tensor& t, std::vector<float> same, Planner& planner)
      : BlockedFilters(w, t, nullptr, nullptr, planner) {
    same_ = std::move(same);
  }
  void fill(const Frame& frame) const {
    for_each_item(threads_, divided_up(channels_, block_), [&](std::size_t of_channels) {
      float* to = copy_.in(frame) + of_channels * (taps_ + 1) * block_;
      for (int c = 0; c < block_; ++c)
        fill_lane(static_cast<int>(of_channels) * block_ + c, to + c);
    });
  }
  const float* weights(const Frame& frame, std::size_t of_channels) const {
    return copy_.in(frame) + of_channels * (taps_ + 1) * block_;
  }
  const float* bias(const Frame& frame, std::size_t of_channels) const {
    return bias_ ? weights(frame, of_channels) + taps_ * block_ : nullptr;
  }

 private:
  void fill_lane(int channel, float* to) const {
    const bool any = channel < channels_;
    const float* from = weights_ ? weights_ + std::size_t(channel) * taps_ : same_.data();
    for (int tap = 0; tap < taps_; ++tap) to[tap * block_] = any ? from[tap] : 0;
    to[taps_ * block_] = any && bias_ ? bias_[channel] : 0;
  }

  int taps_, channels_, block_, threads_;
  const float *weights_, *bias_;
  std::vector<float> same_;
  Scratch copy_;
};

Action plan_sliding(Sliding sliding, const Tensor& source, const Tensor& result,
                    const BlockedFilters& filters, Planner& planner) {
  planner.add_implementation("depthwise");
  // With channels last, neighbouring blocks share lines of caches: few rows of one, then the next.
  constexpr int fewest_rows = 8;
  const int rows = result.shape.height, images = result.shape.batch * result.blocks(),
            wanted = result.channels_last ? rows : divided_up(enough_items, images),
            bands = std::clamp(wanted, 1, std::max(1, rows / fewest_rows));
  const OfThread held(sliding.source().floats(source), planner);
  return with_type(source.element, [&]<class T>(T) -> Action {
    return [=, threads = planner.threads(),
            sum = pick<depthwise::SumOfTaps, T>(planner.isa())](const Frame& frame) {
      filters.fill(frame);
      const std::size_t blocks = result.blocks();
      for_each_item(threads, std::size_t(images) * bands, [&](std::size_t item) {
        const std::size_t n = item / blocks / bands, block = item % blocks;
        const int band = static_cast<int>(item / blocks % bands);
        sum({&sliding, source.run<T>(n, block), result.run<T>(n, block), band * rows / bands,
             (band + 1) * rows / bands, filters.weights(frame, block), filters.bias(frame, block),
             held.in(frame)});
      });
    };
  });
}

// What one item of a filter gradient sums: some neighbouring blocks of channels of every so many
// images. They follow from the shapes alone.
struct Pieces {
  std::size_t together;  // blocks: with channels last they share lines of caches, else memory is
                         // read in longer runs
  std::size_t groups;    // of so many blocks
  std::size_t parts;     // of the images; few where their sums are no smaller than images

  Pieces(const Window& w, const Tensor& x) {
    constexpr std::size_t long_run = 24 << 10, enough_groups = 16, pixels_a_tap = 16;
    const std::size_t blocks = x.blocks(), taps = std::size_t(w.height) * w.width,
                      run = x.pixels() * x.block * bytes_of(x.element), images = x.shape.batch;
    together = std::max<std::size_t>(
        1, x.channels_last ? 4 : std::min(long_run / run, blocks / enough_groups));
    groups = (blocks + together - 1) / together;
    const std::size_t worth = images * x.pixels() / (pixels_a_tap * taps);
    parts =
        std::clamp<std::size_t>(std::min((enough_items + groups - 1) / groups, worth), 1, images);
  }
};

// Sums of the gradients of filters and biases: of each part of the images, and each block of
// channels, its taps, then its bias.
class PartialSums {
 public:
  PartialSums(std::size_t parts, const Window& w, const Tensor& x, Planner& planner)
      : parts_(parts),
        taps_(std::size_t(w.height) * w.width),
        block_(x.block),
        channels_(x.shape.channels),
        blocks_(x.blocks()),
        threads_(planner.threads()),
        all_(planner.scratch(sizeof(float) * parts * x.padded_channels() * (taps_ + 1))) {}
  float* of(const Frame& frame, std::size_t part, std::size_t of_channels) const {
    return all_.in(frame) + (part * blocks_ + of_channels) * (taps_ + 1) * block_;
  }
  void clear(const Frame& frame, std::size_t part, std::size_t of_channels) const {
    std::fill_n(of(frame, part, of_channels), (taps_ + 1) * block_, 0.f);
  }
  void add_up(const Frame& frame, float* weights, float* biases) const {
    for_each_item(threads_, blocks_, [&](std::size_t of_channels) {
      const std::size_t first = of_channels * block_, count = std::min(block_, channels_ - first);
      for (std::size_t tap = 0; tap <= taps_; ++tap) {
        std::array<double, 16> total{};
        for (std::size_t part = 0; part < parts_; ++part) {
          const float* sums = of(frame, part, of_channels) + tap * block_;
          for (std::size_t c = 0; c < block_; ++c) total[c] += sums[c];
        }
        for (std::size_t c = 0; c < count; ++c)
          if (tap < taps_)
            weights[(first + c) * taps_ + tap] = static_cast<float>(total[c]);
          else if (biases)
            biases[first + c] = static_cast<float>(total[c]);
      }
    });
  }

 private:
  std::size_t parts_, taps_, block_, channels_, blocks_;
  int threads_;
  Scratch all_;
};

}  // namespace

bool is_depthwise(const ConvolutionShape& window, const Tensor& x, const Tensor& y) {
  return window.groups > 1 && window.dilation == 1 && window.groups == x.shape.channels &&
         window.groups == y.shape.channels;
}

Action plan_depthwise(const ConvolutionForward& step, const Tensor& x, const Tensor& y,
                      Planner& planner) {
  const BlockedFilters filters(step.window, x, planner.parameters(step.w),
                               planner.parameters(step.b), planner);
  return plan_sliding(Sliding::forward(step.window, x.shape, y.shape), x, y, filters, planner);
}

Action plan_depthwise(const ConvolutionInputGradient& step, const Tensor& dy, const Tensor& dx,
                      Planner& planner) {
  const BlockedFilters filters(step.window, dx, planner.parameters(step.w), nullptr, planner);
  return plan_sliding(Sliding::back(step.window, dy.shape, dx.shape), dy, dx, filters, planner);
}

template <>
Action plan(const FilterForward& step, Planner& planner) {
  const Tensor x = planner.tensor(step.x), y = planner.tensor(step.y);
  return plan_sliding(Sliding::forward(step.window, x.shape, y.shape), x, y,
                      BlockedFilters(step.window, x, step.taps, planner), planner);
}

template <>
Action plan(const FilterBackward& step, Planner& planner) {
  const Tensor dy = planner.tensor(step.dy), dx = planner.tensor(step.dx);
  return plan_sliding(Sliding::back(step.window, dy.shape, dx.shape), dy, dx,
                      BlockedFilters(step.window, dx, step.taps, planner), planner);
}

Action plan_depthwise(const ConvolutionWeightGradient& step, const Tensor& x, const Tensor& dy,
                      Planner& planner) {
  const Pieces pieces(step.window, x);
  const Correlation shape(step.window, x.shape, dy.shape, x.block, step.b.has_value());
  const PartialSums sums(pieces.parts, step.window, x, planner);
  const OfThread held_x(shape.x.floats(x), planner), held_dy(shape.dy.floats(dy), planner);
  planner.add_implementation("depthwise");
  return with_type(x.element, [&]<class T>(T) -> Action {
    return [=, threads = planner.threads(), weights = planner.gradients(step.w),
            biases = planner.gradients(step.b),
            sum = pick<depthwise::SumOfPixels, T>(planner.isa())](const Frame& frame) {
      for_each_item(threads, pieces.parts * pieces.groups, [&](std::size_t item) {
        const std::size_t part = item / pieces.groups,
                          first = item % pieces.groups * pieces.together,
                          end = std::min<std::size_t>(first + pieces.together, x.blocks());
        for (std::size_t block = first; block < end; ++block) sums.clear(frame, part, block);
        for (std::size_t n = part; n < std::size_t(x.shape.batch); n += pieces.parts)
          for (std::size_t block = first; block < end; ++block)
            sum({&shape, x.run<T>(n, block), dy.run<T>(n, block), sums.of(frame, part, block),
                 held_x.in(frame), held_dy.in(frame)});
      });
      sums.add_up(frame, weights, biases);
    };
  });
}

}  // namespace ringtrain::compute::onednn
