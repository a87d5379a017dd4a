#include <algorithm>

#include "compute/onednn/descriptors.hpp"
#include "compute/onednn/kernels/amx_weight_gradient.hpp"
#include "compute/onednn/phases.hpp"
#include "compute/onednn/plan.hpp"
#include "compute/onednn/winograd/winograd.hpp"

namespace ringtrain::compute::onednn {
namespace {

using dnnl::memory;

// oneDNN's kernels with channels last handle a row of pixels at a time. To a 1x1 convolution all
// pixels of a batch are alike, and with long rows AMX is up to four times as fast. Weight gradients
// want each row to be an image, other passes all rows to be one.
constexpr memory::dim longest_row = 256;
enum class RowMerging { as_they_are, in_one_image, in_images };

memory::desc desc_of(const Tensor& t, RowMerging rows) {
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
constexpr int longest_amx_row = 224;

// One convolution's layouts. Activations are given; the weights' format is oneDNN's choice, and
// each step reorders from or into the flat buffer, through scratch memory that is still in cache.
struct ConvolutionGeometry {
  ConvolutionGeometry(const ConvolutionShape& window, const Tensor& x, const Tensor& y,
                      RowMerging long_rows = RowMerging::in_one_image)
      : held{y.shape.channels, x.shape.channels, window.height, window.width},
        seen(held),
        breaks_amx(!is_of_one_pixel(window) &&
                   (y.shape.width > longest_amx_row || x.shape.width < window.stride_x)),
        sliding(window_dims(window)) {
    Tensor padded = x;
    if (x.channels_last) {
      seen[0] = y.padded_channels();
      seen[1] = x.padded_channels();
    } else if (x.block > 1) {
      // A blocked source of less than a block has only a reference kernel. Its padding is zero, so
      // it may as well be called channels.
      seen[1] = padded.shape.channels = std::max(x.shape.channels, x.block);
    }
    const bool each = is_of_one_pixel(window) && window.stride_y == 1 && window.stride_x == 1;
    const RowMerging rows = x.channels_last && each ? long_rows : RowMerging::as_they_are;
    source = desc_of(padded, rows);
    destination = desc_of(y, rows);
    any = {seen, data_type_of(x.element), memory::format_tag::any};
    any_gradient = {seen, memory::data_type::f32, memory::format_tag::any};
    bias = {{seen[0]}, memory::data_type::f32, memory::format_tag::x};
  }

  memory::dims held, seen;  // of the weights: in the flat buffer, and as oneDNN sees them
  bool breaks_amx;          // in weight gradients
  memory::desc source, destination, any, any_gradient, bias;
  WindowDims sliding;
};

constexpr auto direct = dnnl::algorithm::convolution_direct;

dnnl::convolution_forward::primitive_desc forward_desc(const ConvolutionGeometry& g, bool bias,
                                                       Activation then,
                                                       const dnnl::engine& engine) {
  constexpr auto training = dnnl::prop_kind::forward_training;
  dnnl::primitive_attr attr = attributes();
  if (const std::optional<Eltwise> f = eltwise_of(then)) {
    dnnl::post_ops epilogue;
    append_eltwise(epilogue, *f);
    attr.set_post_ops(epilogue);
  }
  const PrimitiveOptions making{engine, attr};
  using Primitive = dnnl::convolution_forward;
  return bias ? forward_descriptor<Primitive>(making, g.sliding, training, direct, g.source, g.any,
                                              g.bias, g.destination)
              : forward_descriptor<Primitive>(making, g.sliding, training, direct, g.source, g.any,
                                              g.destination);
}

// Backward steps' descriptors; oneDNN wants that of the forward step as a hint.
dnnl::convolution_backward_data::primitive_desc input_gradient_desc(const ConvolutionGeometry& g,
                                                                    const dnnl::engine& engine) {
  const auto forward = forward_desc(g, false, Activation::none, engine);
  const dnnl::primitive_attr attr = attributes();
  const PrimitiveOptions making{engine, attr};
  return backward_descriptor<dnnl::convolution_backward_data>(making, g.sliding, forward, direct,
                                                              g.source, g.any, g.destination);
}

dnnl::convolution_backward_weights::primitive_desc weight_gradient_desc(
    const ConvolutionGeometry& g, bool bias, const dnnl::engine& engine) {
  using Primitive = dnnl::convolution_backward_weights;
  const auto forward = forward_desc(g, bias, Activation::none, engine);
  const dnnl::primitive_attr attr = attributes();
  const PrimitiveOptions making{engine, attr, g.breaks_amx};
  if (bias)
    return backward_descriptor<Primitive>(making, g.sliding, forward, direct, g.source,
                                          g.any_gradient, g.bias, g.destination);
  return backward_descriptor<Primitive>(making, g.sliding, forward, direct, g.source,
                                        g.any_gradient, g.destination);
}

// Whether the flat buffer's filters are the convolution's, or those of its input gradient.
enum class WeightAxes { as_they_are, turned };

// A step's weights, in the format that oneDNN chose for it, in scratch memory. Where these are not
// all of the flat buffer's, or oneDNN sees more channels than that holds, a copy with zeroes for
// the others lies between.
class Weights {
 public:
  Weights(const memory::desc& chosen, const ConvolutionGeometry& g, const Taps& taps, float* flat,
          Planner& planner, WeightAxes axes = WeightAxes::as_they_are)
      : flat_(flat), taps_(taps), held_(g.held), seen_(g.seen), threads_(planner.threads()) {
    const bool turned = axes == WeightAxes::turned;
    if (turned) std::swap(held_[0], held_[1]), std::swap(seen_[0], seen_[1]);
    memory::desc plain(seen_, memory::data_type::f32, memory::format_tag::ohwi);
    if (turned) plain = plain.permute_axes({1, 0, 2, 3});
    if (copied()) copy_ = planner.scratch(plain.get_size());
    plain_ = copied() ? planner.memory(plain, copy_) : planner.memory(plain, flat);
    chosen_ = planner.memory(chosen, planner.scratch(chosen.get_size()));
  }
  const memory& chosen() const { return chosen_; }
  Action from_flat(Planner& planner) const {
    const BoundPrimitive format = reorder(plain_, chosen_, planner);
    if (!copied()) return [format](const Frame&) { format(); };
    return [format, w = *this](const Frame& frame) {
      const auto held = static_cast<std::size_t>(w.held_[1]), seen = w.seen_channels();
      w.for_each_tap(frame, [&](const float* flat, float* copy) {
        std::fill_n(std::copy_n(flat, held, copy), seen - held, 0.f);
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
      w.for_each_tap(frame,
                     [&](float* flat, const float* copy) { std::copy_n(copy, w.held_[1], flat); });
    };
  }

 private:
  bool copied() const { return seen_ != held_ || !taps_.lie_in_order(held_[2], held_[3]); }
  std::size_t seen_channels() const { return static_cast<std::size_t>(seen_[1]); }
  // Taps of all filters.
  static std::size_t rows(const memory::dims& w) {
    return static_cast<std::size_t>(w[0] * w[2] * w[3]);
  }
  // Calls f(channels in the flat buffer, channels in the copy).
  template <class F>
  void for_each_tap(const Frame& frame, const F& f) const {
    const memory::dim height = held_[2], width = held_[3];
    for_each_item(threads_, static_cast<std::size_t>(held_[0]), [&](std::size_t filter) {
      float* copy = copy_.in(frame) + filter * height * width * seen_channels();
      float* const first = flat_ + filter * taps_.rows * taps_.columns * held_[1];
      for (memory::dim y = 0; y < height; ++y)
        for (memory::dim x = 0; x < width; ++x, copy += seen_channels()) {
          const memory::dim row = taps_.first_y + y * taps_.step_y,
                            tap = row * taps_.columns + taps_.first_x + x * taps_.step_x;
          f(first + tap * held_[1], copy);
        }
    });
  }
  static BoundPrimitive reorder(const memory& from, const memory& to, Planner& planner) {
    const dnnl::reorder::primitive_desc desc(from, to, attributes());
    return planner.bind<dnnl::reorder>(desc, {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}});
  }

  float* flat_;
  Taps taps_;
  memory::dims held_, seen_;
  int threads_;
  Scratch copy_;
  memory plain_, chosen_;
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
  void add_to(std::vector<std::pair<int, memory>>& arguments, int name) const {
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
  memory memory_;
};

memory memory_of(const memory::desc& desc, const Operand& operand, Planner& planner) {
  return operand.scratch ? planner.memory(desc, *operand.scratch)
                         : planner.memory(desc, operand.tensor.data);
}

Action convolve_with(const Weights& weights, BoundPrimitive convolve, Planner& planner) {
  return [format = weights.from_flat(planner), convolve = std::move(convolve)](const Frame& frame) {
    format(frame);
    convolve();
  };
}

// oneDNN 2.6 runs forward steps with AMX faster than input gradients, which are the convolution of
// dy with the filter turned around. Null where more is padded than the filter reaches.
Action plan_as_forward(const Taps& taps, const ConvolutionInputGradient& step, const Operand& dy,
                       const Operand& dx, Planner& planner) {
  const Window& w = step.window;
  const Window turned{w.height,
                      w.width,
                      1,
                      1,
                      w.height - 1 - w.top,
                      w.width - 1 - w.left,
                      w.height - 1 - w.bottom,
                      w.width - 1 - w.right};
  if (std::min({turned.top, turned.left, turned.bottom, turned.right}) < 0) return {};
  const ConvolutionGeometry g(turned, dy.tensor, dx.tensor);
  const auto desc = forward_desc(g, false, Activation::none, planner.engine());
  const Weights weights(desc.weights_desc(), g, taps.turned(w), planner.parameters(step.w), planner,
                        WeightAxes::turned);
  return convolve_with(weights,
                       planner.bind<dnnl::convolution_forward>(
                           desc, {{DNNL_ARG_SRC, memory_of(g.source, dy, planner)},
                                  {DNNL_ARG_WEIGHTS, weights.chosen()},
                                  {DNNL_ARG_DST, memory_of(g.destination, dx, planner)}}),
                       planner);
}

Action plan_input_gradient_of(const Taps& taps, const ConvolutionInputGradient& step,
                              const Operand& dy, const Operand& dx, Planner& planner) {
  using Primitive = dnnl::convolution_backward_data;
  const bool dense = step.window.stride_y == 1 && step.window.stride_x == 1;
  if (dense && dx.tensor.channels_last && has_amx_bf16())
    if (Action as_forward = plan_as_forward(taps, step, dy, dx, planner)) return as_forward;
  const ConvolutionGeometry g(step.window, dx.tensor, dy.tensor);
  const auto desc = input_gradient_desc(g, planner.engine());
  const Weights weights(desc.weights_desc(), g, taps, planner.parameters(step.w), planner);
  return convolve_with(
      weights,
      planner.bind<Primitive>(desc, {{DNNL_ARG_DIFF_DST, memory_of(g.destination, dy, planner)},
                                     {DNNL_ARG_WEIGHTS, weights.chosen()},
                                     {DNNL_ARG_DIFF_SRC, memory_of(g.source, dx, planner)}}),
      planner);
}

Action plan_weight_gradient_of(const Taps& taps, const ConvolutionWeightGradient& step,
                               const Operand& x, const Operand& dy, Planner& planner) {
  if (suits_amx(step, x.tensor, dy.tensor, planner.threads()))
    return plan_amx(taps, step, x, dy, planner);
  using Primitive = dnnl::convolution_backward_weights;
  const ConvolutionGeometry g(step.window, x.tensor, dy.tensor, RowMerging::in_images);
  const auto desc = weight_gradient_desc(g, step.b.has_value(), planner.engine());
  const Weights weights(desc.diff_weights_desc(), g, taps, planner.gradients(step.w), planner);
  const Bias bias(g, planner.gradients(step.b), planner);
  std::vector<std::pair<int, memory>> arguments{
      {DNNL_ARG_SRC, memory_of(g.source, x, planner)},
      {DNNL_ARG_DIFF_DST, memory_of(g.destination, dy, planner)},
      {DNNL_ARG_DIFF_WEIGHTS, weights.chosen()}};
  bias.add_to(arguments, DNNL_ARG_DIFF_BIAS);

  return [correlate = planner.bind<Primitive>(desc, std::move(arguments)),
          format = weights.to_flat(planner), bias](const Frame& frame) {
    correlate();
    format(frame);
    bias.to_flat(frame);
  };
}

}  // namespace

Action plan_forward(const ConvolutionForward& step, const Operand& x, const Operand& y,
                    Planner& planner) {
  const ConvolutionGeometry g(step.window, x.tensor, y.tensor);
  const auto desc = forward_desc(g, step.b.has_value(), step.then, planner.engine());
  const Weights weights(desc.weights_desc(), g, Taps::all(step.window), planner.parameters(step.w),
                        planner);
  const Bias bias(g, planner.parameters(step.b), planner);
  std::vector<std::pair<int, memory>> arguments{
      {DNNL_ARG_SRC, memory_of(g.source, x, planner)},
      {DNNL_ARG_WEIGHTS, weights.chosen()},
      {DNNL_ARG_DST, memory_of(g.destination, y, planner)}};
  bias.add_to(arguments, DNNL_ARG_BIAS);

  return [format = weights.from_flat(planner), bias,
          convolve = planner.bind<dnnl::convolution_forward>(desc, std::move(arguments))](
             const Frame& frame) {
    format(frame);
    bias.from_flat(frame);
    convolve();
  };
}

Action plan_input_gradient(const ConvolutionInputGradient& step, const Operand& dy,
                           const Operand& dx, Planner& planner) {
  return plan_input_gradient_of(Taps::all(step.window), step, dy, dx, planner);
}

Action plan_weight_gradient(const ConvolutionWeightGradient& step, const Operand& x,
                            const Operand& dy, Planner& planner) {
  return plan_weight_gradient_of(Taps::all(step.window), step, x, dy, planner);
}

template <>
Action plan(const ConvolutionForward& step, Planner& planner) {
  const Tensor x = planner.tensor(step.x), y = planner.tensor(step.y);
  const bool winograd = suits_winograd(step.window, x, y, planner.isa());
  if (!is_relu_or_none(step.then) && (winograd || !eltwise_of(step.then))) {
    ConvolutionForward bare = step;
    bare.then = Activation::none;
    return then_in_place(plan(bare, planner), step.then, step.y, planner);
  }
  if (winograd) return plan_winograd(step, x, y, planner);
  const std::vector<Phase> phases = dense_phases(step.window, x, y, false);
  if (phases.empty())
    return padding_zeroed(step.then, step.y, plan_forward(step, {x}, {y}, planner), planner);
  const PhasePixels taken(phases.front(), step.window, x, planner);
  ConvolutionForward dense = step;
  dense.window = phases.front().window;
  Action run = [taken,
                convolve = plan_forward(dense, taken.operand(), {y}, planner)](const Frame& frame) {
    taken.read(frame);
    convolve(frame);
  };
  return padding_zeroed(step.then, step.y, std::move(run), planner);
}

template <>
Action plan(const ConvolutionInputGradient& step, Planner& planner) {
  const Tensor dy = planner.tensor(step.dy),
               dx = planner.tensor(step.epilogue ? step.epilogue->g : step.dx);
  if (suits_winograd(step.window, dx, dy, planner.isa()))
    return plan_winograd(step, dy, dx, planner);
  const std::vector<Phase> phases = dense_phases(step.window, dx, dy, has_amx_bf16());
  if (phases.empty()) return plan_input_gradient(step, {dy}, {dx}, planner);
  std::vector<std::pair<Action, PhasePixels>> parts;
  for (const Phase& phase : phases) {
    const PhasePixels given(phase, step.window, dx, planner);
    ConvolutionInputGradient dense = step;
    dense.window = phase.window;
    parts.emplace_back(plan_input_gradient_of(phase.taps, dense, {dy}, given.operand(), planner),
                       given);
  }
  const bool all = std::ssize(phases) == step.window.stride_y * step.window.stride_x;
  return [dx, parts, all, threads = planner.threads()](const Frame& frame) {
    if (!all) clear(dx, threads);
    for (const auto& [convolve, given] : parts) {
      convolve(frame);
      given.write(frame);
    }
  };
}

template <>
Action plan(const ConvolutionWeightGradient& step, Planner& planner) {
  const Tensor x = planner.tensor(step.x), dy = planner.tensor(step.dy);
  if (suits_winograd(step.window, x, dy, planner.isa())) return plan_winograd(step, x, dy, planner);
  const std::vector<Phase> phases = dense_phases(step.window, x, dy, has_amx_bf16());
  if (phases.empty()) return plan_weight_gradient(step, {x}, {dy}, planner);
  std::vector<std::pair<PhasePixels, Action>> parts;
  ConvolutionWeightGradient dense = step;
  for (const Phase& phase : phases) {
    const PhasePixels taken(phase, step.window, x, planner);
    dense.window = phase.window;
    parts.emplace_back(taken,
                       plan_weight_gradient_of(phase.taps, dense, taken.operand(), {dy}, planner));
    dense.b.reset();  // the first phase gave it
  }
  return [parts](const Frame& frame) {
    for (const auto& [taken, correlate] : parts) {
      taken.read(frame);
      correlate(frame);
    }
  };
}

}  // namespace ringtrain::compute::onednn
