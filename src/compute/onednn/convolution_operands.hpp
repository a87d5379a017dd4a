#pragma once
#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "compute/onednn/descriptors.hpp"
#include "compute/onednn/phases.hpp"
#include "compute/onednn/plan.hpp"

namespace ringtrain::compute::onednn {

// oneDNN's kernels with channels last handle a row of pixels at a time. To a 1x1 convolution all
// pixels of a batch are alike, and with long rows AMX is up to four times as fast. Weight gradients
// want each row to be an image, other passes all rows to be one.
inline constexpr dnnl::memory::dim longest_row = 256;
enum class RowMerging { as_they_are, in_one_image, in_images };

inline dnnl::memory::desc desc_of(const Tensor& t, RowMerging rows) {
  using dnnl::memory;
  const auto pixels = static_cast<memory::dim>(t.shape.batch * t.pixels());
  memory::dim row = std::min(longest_row, pixels);
  while (pixels % row != 0) --row;
  if (rows == RowMerging::as_they_are || row <= t.shape.width) return desc_of(t);
  const memory::dim channels = t.padded_channels(), count = pixels / row;
  const bool one = rows == RowMerging::in_one_image;
  return {one ? memory::dims{1, channels, count, row} : memory::dims{count, channels, 1, row},
          data_type_of(t.element), memory::format_tag::nhwc};
}

// oneDNN 2.6's AMX kernel of 3x3 weight gradients writes in front of them, and wrong ones, where
// rows of results are longer than this. Seen with steps of 1; others are not trusted either. Where
// an image is narrower than a step, it leaves weights that no pixel meets unwritten.
inline constexpr int longest_amx_row = 224;

// How oneDNN sees the groups of a convolution. Its kernels of groups whose channels fill no block
// are reference ones, a hundred times slower: so neighbours are merged, with weights of zero
// between them, into groups of whole blocks, or all into one.
struct Groups {
  int count = 1;          ///< as oneDNN sees them
  int in = 0, out = 0;    ///< channels of one of those, where there are more than one
  int merged = 1;         ///< groups in one of those
  int held_in, held_out;  ///< channels of a group

  Groups(int groups, const Tensor& x, const Tensor& y)
      : merged(groups), held_in(x.shape.channels / groups), held_out(y.shape.channels / groups) {
    const auto whole = [](int channels, const Tensor& t) { return channels % t.block == 0; };
    for (int n = 1; n < groups; ++n) {
      const bool one_block = n * held_in == x.block && n * held_out == y.block;
      if (!whole(n * held_in, x) || !whole(n * held_out, y)) continue;
      if (groups % n != 0 && !one_block) continue;  // the last one's padding must be tensors' own
      *this = {(groups + n - 1) / n, n * held_in, n * held_out, n, held_in, held_out};
      return;
    }
  }

 private:
  Groups(int groups, int ins, int outs, int of, int its_in, int its_out)
      : count(groups), in(ins), out(outs), merged(of), held_in(its_in), held_out(its_out) {}
};

// One convolution's layouts. Activations are given; the weights' format is oneDNN's choice, and
// each step reorders from or into the flat buffer, through scratch memory that is still in cache.
struct ConvolutionGeometry {
  ConvolutionGeometry(const ConvolutionShape& window, const Tensor& x, const Tensor& y,
                      RowMerging long_rows = RowMerging::in_one_image)
      : groups(window.groups, x, y),
        held{y.shape.channels, groups.held_in, window.height, window.width},
        seen{y.shape.channels, x.shape.channels, window.height, window.width},
        breaks_amx(groups.count > 1 ||
                   (!is_of_one_pixel(window) &&
                    (y.shape.width > longest_amx_row || x.shape.width < window.stride_x))),
        sliding(window_dims(window)) {
    Tensor from = x, to = y;
    if (groups.count > 1) {
      seen[0] = to.shape.channels = groups.count * groups.out;
      seen[1] = groups.in;
      from.shape.channels = groups.count * groups.in;
    } else if (x.channels_last) {
      seen[0] = y.padded_channels();
      seen[1] = x.padded_channels();
    } else if (x.block > 1) {
      // A blocked source of less than a block has only a reference kernel. Its padding is zero, so
      // it may as well be called channels.
      seen[1] = from.shape.channels = std::max(x.shape.channels, x.block);
    } else if (y.element == Element::bf16) {
      // Nor has the weight gradient of images in bf16 another kernel for part of a block.
      seen[0] = to.shape.channels = y.padded_channels();
    }
    const bool each = is_of_one_pixel(window) && window.stride_y == 1 && window.stride_x == 1;
    const RowMerging rows = x.channels_last && each ? long_rows : RowMerging::as_they_are;
    source = desc_of(from, rows);
    destination = desc_of(to, rows);
    any = {weight_dims(), data_type_of(x.element), dnnl::memory::format_tag::any};
    any_gradient = {weight_dims(), dnnl::memory::data_type::f32, dnnl::memory::format_tag::any};
    bias = {{seen[0]}, dnnl::memory::data_type::f32, dnnl::memory::format_tag::x};
  }
  // As oneDNN has them: with the groups first, where there are any.
  dnnl::memory::dims weight_dims() const {
    if (groups.count == 1) return seen;
    return {groups.count, groups.out, seen[1], seen[2], seen[3]};
  }

  Groups groups;
  dnnl::memory::dims held, seen;  // of the weights: in the flat buffer, and as oneDNN sees them
  bool breaks_amx;                // in weight gradients
  dnnl::memory::desc source, destination, any, any_gradient, bias;
  WindowDims sliding;
};

// Whether the flat buffer's filters are the convolution's, or those of its input gradient.
enum class WeightAxes { as_they_are, turned };

// A step's weights, in the format that oneDNN chose for it, in scratch memory. Where these are not
// all of the flat buffer's, or oneDNN sees more channels than that holds, a copy with zeroes for
// the others lies between.
class Weights {
 public:
  Weights(const dnnl::memory::desc& chosen, const ConvolutionGeometry& g, const Taps& taps,
          float* flat, Planner& planner, WeightAxes axes = WeightAxes::as_they_are)
      : flat_(flat),
        taps_(taps),
        groups_(g.groups),
        held_(g.held),
        seen_(g.seen),
        threads_(planner.threads()) {
    using dnnl::memory;
    const bool turned = axes == WeightAxes::turned;
    if (turned) std::swap(held_[0], held_[1]), std::swap(seen_[0], seen_[1]);
    const bool grouped = groups_.count > 1;
    memory::desc plain(grouped ? g.weight_dims() : seen_, memory::data_type::f32,
                       grouped ? memory::format_tag::gohwi : memory::format_tag::ohwi);
    if (turned) plain = plain.permute_axes({1, 0, 2, 3});
    if (copied()) copy_ = planner.scratch(plain.get_size());
    plain_ = copied() ? planner.memory(plain, copy_) : planner.memory(plain, flat);
    chosen_ = planner.memory(chosen, planner.scratch(chosen.get_size()));
  }
  const dnnl::memory& chosen() const { return chosen_; }
  Action from_flat(Planner& planner) const {
    const BoundPrimitive format = reorder(plain_, chosen_, planner);
    if (!copied()) return [format](const Frame&) { format(); };
    return [format, w = *this](const Frame& frame) {
      const auto held = static_cast<std::size_t>(w.held_[1]), seen = w.seen_channels();
      w.for_each_tap(frame, [&](const float* flat, float* copy, std::size_t first) {
        std::fill_n(copy, first, 0.f);
        std::fill_n(std::copy_n(flat, held, copy + first), seen - first - held, 0.f);
      });
      std::fill(w.copy_.in(frame) + w.rows(w.held_) * seen,
                w.copy_.in(frame) + w.rows(w.seen_) * seen, 0.f);
      format();
    };
  }
  Action to_flat(Planner& planner) const {
    const BoundPrimitive format = reorder(chosen_, plain_, planner);
    if (!copied()) return [format](const Frame&) { format(); };
    return [format, w = *this](const Frame& frame) {
      format();
      w.for_each_tap(frame, [&](float* flat, const float* copy, std::size_t first) {
        std::copy_n(copy + first, w.held_[1], flat);
      });
    };
  }

 private:
  bool copied() const { return seen_ != held_ || !taps_.lie_in_order(held_[2], held_[3]); }
  std::size_t seen_channels() const { return static_cast<std::size_t>(seen_[1]); }
  // Taps of all filters.
  static std::size_t rows(const dnnl::memory::dims& w) {
    return static_cast<std::size_t>(w[0] * w[2] * w[3]);
  }
  // Calls f(channels in the flat buffer, channels in the copy, the first of those that it has).
  template <class F>
  void for_each_tap(const Frame& frame, const F& f) const {
    using dnnl::memory;
    const memory::dim height = held_[2], width = held_[3];
    for_each_item(threads_, static_cast<std::size_t>(held_[0]), [&](std::size_t filter) {
      float* copy = copy_.in(frame) + filter * height * width * seen_channels();
      const std::size_t group = filter / groups_.held_out % groups_.merged,
                        channel = group * groups_.held_in;
      float* const first = flat_ + filter * taps_.rows * taps_.columns * held_[1];
      for (memory::dim y = 0; y < height; ++y)
        for (memory::dim x = 0; x < width; ++x, copy += seen_channels()) {
          const memory::dim row = taps_.first_y + y * taps_.step_y,
                            tap = row * taps_.columns + taps_.first_x + x * taps_.step_x;
          f(first + tap * held_[1], copy, channel);
        }
    });
  }
  static BoundPrimitive reorder(const dnnl::memory& from, const dnnl::memory& to,
                                Planner& planner) {
    const dnnl::reorder::primitive_desc desc(from, to, attributes());
    return planner.bind<dnnl::reorder>(desc, {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}});
  }

  float* flat_;
  Taps taps_;
  Groups groups_;
  dnnl::memory::dims held_, seen_;
  int threads_;
  Scratch copy_;
  dnnl::memory plain_, chosen_;
};

// A bias or its gradient, a copy of it where oneDNN sees more channels than the flat buffer holds.
class Bias {
 public:
  Bias(const ConvolutionGeometry& g, float* flat, Planner& planner)
      : flat_(flat),
        held_(static_cast<std::size_t>(g.held[0])),
        seen_(static_cast<std::size_t>(g.seen[0])) {
    if (flat == nullptr) return;
    if (padded()) copy_ = planner.scratch(g.bias.get_size());
    memory_ = padded() ? planner.memory(g.bias, copy_) : planner.memory(g.bias, flat);
  }
  void add_to(std::vector<std::pair<int, dnnl::memory>>& arguments, int name) const {
    if (flat_) arguments.emplace_back(name, memory_);
  }
  void from_flat(const Frame& frame) const {
    if (flat_ == nullptr || !padded()) return;
    std::fill_n(std::copy_n(flat_, held_, copy_.in(frame)), seen_ - held_, 0.f);
  }
  void to_flat(const Frame& frame) const {
    if (flat_ && padded()) std::copy_n(copy_.in(frame), held_, flat_);
  }

 private:
  bool padded() const { return seen_ != held_; }

  float* flat_;
  std::size_t held_, seen_;
  Scratch copy_;
  dnnl::memory memory_;
};

}  // namespace ringtrain::compute::onednn
