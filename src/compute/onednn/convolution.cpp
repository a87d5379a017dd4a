#include <algorithm>
#include <type_traits>

#include "compute/onednn/descriptors.hpp"
#include "compute/onednn/plan.hpp"

namespace ringtrain::onednn {
namespace {

using dnnl::memory;

// One convolution's layouts. Activations are given; the weights' format is oneDNN's choice, and
// each step reorders from or into the flat buffer, through scratch memory that is still in cache.
struct ConvolutionGeometry {
  ConvolutionGeometry(const Window& window, const Tensor& x, const Tensor& y)
      : held{y.shape.channels, x.shape.channels, window.height, window.width},
        seen(held),
        destination(desc_of(y)),
        bias({y.shape.channels}, memory::data_type::f32, memory::format_tag::x),
        sliding(sliding_of(window)) {
    // A blocked source of less than a block has only a reference kernel. Its padding is zero, so it
    // may as well be called channels.
    Tensor padded = x;
    if (x.block > 1) padded.shape.channels = std::max(x.shape.channels, x.block);
    source = desc_of(padded);
    seen[1] = padded.shape.channels;
    any = {seen, memory::data_type::f32, memory::format_tag::any};
  }

  memory::dims held, seen;  // of the weights: in the flat buffer, and as oneDNN sees them
  memory::desc source, destination, any, bias;
  Sliding sliding;
};

using Algorithm = dnnl::algorithm;
constexpr auto direct = Algorithm::convolution_direct, winograd = Algorithm::convolution_winograd;

// Winograd's algorithm makes 3x3 convolutions of many channels up to twice as fast, with errors
// below 1e-5 of the largest result; with 16 channels it is slower. Bounds are those of the measured
// gain, and the last one keeps its scratch memory from exceeding the activations by far.
constexpr int fewest_for_activations = 32, fewest_for_weights = 64;
constexpr std::size_t most_winograd_scratch = std::size_t{256} << 20;

bool suits_winograd(const ConvolutionGeometry& g, const Window& w, int fewest_channels) {
  const auto channels = std::min(g.held[0], g.held[1]);
  return w.height == 3 && w.width == 3 && w.stride_y == 1 && w.stride_x == 1 &&
         channels >= fewest_channels;
}

// make(algorithm) returns a primitive descriptor, an empty one where oneDNN has no such kernel.
template <class Make>
auto fastest(bool try_winograd, Make make) {
  if (try_winograd) {
    auto desc = make(winograd);
    if (desc && desc.scratchpad_desc().get_size() <= most_winograd_scratch) return desc;
  }
  return make(direct);
}

// Empty only where there is no Winograd kernel.
dnnl::convolution_forward::primitive_desc forward_desc(const ConvolutionGeometry& g,
                                                       Algorithm algorithm, bool bias, bool relu,
                                                       const dnnl::engine& engine) {
  constexpr auto training = dnnl::prop_kind::forward_training;
  dnnl::primitive_attr attr = attributes();
  if (relu) {
    dnnl::post_ops epilogue;
    append_relu(epilogue);
    attr.set_post_ops(epilogue);
  }
  const Making making{engine, attr, algorithm == winograd};
  using Primitive = dnnl::convolution_forward;
  return bias ? forward_descriptor<Primitive>(making, g.sliding, training, algorithm, g.source,
                                              g.any, g.bias, g.destination)
              : forward_descriptor<Primitive>(making, g.sliding, training, algorithm, g.source,
                                              g.any, g.destination);
}

// A backward step's descriptor; oneDNN wants that of the forward step as a hint.
template <class Primitive>
typename Primitive::primitive_desc backward_desc(const ConvolutionGeometry& g, Algorithm algorithm,
                                                 bool bias, const dnnl::engine& engine) {
  const auto forward = forward_desc(g, algorithm, bias, false, engine);
  if (!forward) return {};
  const dnnl::primitive_attr attr = attributes();
  const Making making{engine, attr, algorithm == winograd};
  if constexpr (std::is_same_v<Primitive, dnnl::convolution_backward_weights>)
    if (bias)
      return backward_descriptor<Primitive>(making, g.sliding, forward, algorithm, g.source, g.any,
                                            g.bias, g.destination);
  return backward_descriptor<Primitive>(making, g.sliding, forward, algorithm, g.source, g.any,
                                        g.destination);
}

// A step's weights, in the format that oneDNN chose for it, in scratch memory. Where oneDNN sees
// more channels than the flat buffer holds, a copy with zeroes for the others lies between.
class Weights {
 public:
  Weights(const memory::desc& chosen, const ConvolutionGeometry& g, float* flat, Planner& planner)
      : planner_(planner),
        flat_(flat),
        held_(static_cast<std::size_t>(g.held[1])),
        seen_(static_cast<std::size_t>(g.seen[1])),
        rows_(static_cast<std::size_t>(g.held[0] * g.held[2] * g.held[3])) {
    const memory::desc plain(g.seen, memory::data_type::f32, memory::format_tag::ohwi);
    if (seen_ != held_) copy_ = planner.scratch(plain.get_size());
    plain_ = seen_ != held_ ? planner.memory(plain, copy_) : planner.memory(plain, flat);
    chosen_ = planner.memory(chosen, planner.scratch(chosen.get_size()));
  }
  const memory& chosen() const { return chosen_; }
  Action from_flat() const {
    if (seen_ == held_) return [format = reorder(plain_, chosen_)](const Frame&) { format(); };
    return [format = reorder(plain_, chosen_), flat = flat_, copy = copy_, held = held_,
            seen = seen_, rows = rows_](const Frame& frame) {
      float* padded = copy.in(frame);
      for (std::size_t row = 0; row < rows; ++row, padded += seen) {
        std::copy_n(flat + row * held, held, padded);
        std::fill(padded + held, padded + seen, 0.f);
      }
      format();
    };
  }
  Action to_flat() const {
    if (seen_ == held_) return [format = reorder(chosen_, plain_)](const Frame&) { format(); };
    return [format = reorder(chosen_, plain_), flat = flat_, copy = copy_, held = held_,
            seen = seen_, rows = rows_](const Frame& frame) {
      format();
      const float* padded = copy.in(frame);
      for (std::size_t row = 0; row < rows; ++row)
        std::copy_n(padded + row * seen, held, flat + row * held);
    };
  }

 private:
  BoundPrimitive reorder(const memory& from, const memory& to) const {
    const dnnl::reorder::primitive_desc desc(from, to, attributes());
    return planner_.bind<dnnl::reorder>(desc, {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}});
  }

  Planner& planner_;
  float* flat_;
  std::size_t held_, seen_, rows_;  // channels of a filter's pixel, and the pixels of all filters
  Scratch copy_;
  memory plain_, chosen_;
};

}  // namespace

Action plan(const ConvolutionForward& step, Planner& planner) {
  const Tensor &x = planner.tensor(step.x), &y = planner.tensor(step.y);
  const ConvolutionGeometry g(step.window, x, y);
  const auto desc =
      fastest(suits_winograd(g, step.window, fewest_for_activations), [&](Algorithm algorithm) {
        return forward_desc(g, algorithm, step.b.has_value(), step.relu, planner.engine());
      });
  const Weights weights(desc.weights_desc(), g, planner.parameters(step.w), planner);
  std::vector<std::pair<int, memory>> arguments{{DNNL_ARG_SRC, planner.memory(g.source, x.data)},
                                                {DNNL_ARG_WEIGHTS, weights.chosen()},
                                                {DNNL_ARG_DST, planner.memory(y)}};
  if (step.b)
    arguments.emplace_back(DNNL_ARG_BIAS, planner.memory(g.bias, planner.parameters(*step.b)));

  return [format = weights.from_flat(), convolve = planner.bind<dnnl::convolution_forward>(
                                            desc, std::move(arguments))](const Frame& frame) {
    format(frame);
    convolve();
  };
}

Action plan(const ConvolutionInputGradient& step, Planner& planner) {
  using Primitive = dnnl::convolution_backward_data;
  const Tensor &dx = planner.tensor(step.dx), &dy = planner.tensor(step.dy);
  const ConvolutionGeometry g(step.window, dx, dy);
  const auto desc =
      fastest(suits_winograd(g, step.window, fewest_for_activations), [&](Algorithm algorithm) {
        return backward_desc<Primitive>(g, algorithm, false, planner.engine());
      });
  const Weights weights(desc.weights_desc(), g, planner.parameters(step.w), planner);

  return [format = weights.from_flat(),
          convolve = planner.bind<Primitive>(
              desc, {{DNNL_ARG_DIFF_DST, planner.memory(dy)},
                     {DNNL_ARG_WEIGHTS, weights.chosen()},
                     {DNNL_ARG_DIFF_SRC, planner.memory(g.source, dx.data)}})](const Frame& frame) {
    format(frame);
    convolve();
  };
}

Action plan(const ConvolutionWeightGradient& step, Planner& planner) {
  using Primitive = dnnl::convolution_backward_weights;
  const Tensor &x = planner.tensor(step.x), &dy = planner.tensor(step.dy);
  const ConvolutionGeometry g(step.window, x, dy);
  const auto desc =
      fastest(suits_winograd(g, step.window, fewest_for_weights), [&](Algorithm algorithm) {
        return backward_desc<Primitive>(g, algorithm, step.b.has_value(), planner.engine());
      });
  const Weights weights(desc.diff_weights_desc(), g, planner.gradients(step.w), planner);
  std::vector<std::pair<int, memory>> arguments{{DNNL_ARG_SRC, planner.memory(g.source, x.data)},
                                                {DNNL_ARG_DIFF_DST, planner.memory(dy)},
                                                {DNNL_ARG_DIFF_WEIGHTS, weights.chosen()}};
  if (step.b)
    arguments.emplace_back(DNNL_ARG_DIFF_BIAS, planner.memory(g.bias, planner.gradients(*step.b)));

  return [correlate = planner.bind<Primitive>(desc, std::move(arguments)),
          format = weights.to_flat()](const Frame& frame) {
    correlate();
    format(frame);
  };
}

}  // namespace ringtrain::onednn
