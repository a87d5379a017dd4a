#include <algorithm>

#include "compute/onednn/plan.hpp"

namespace ringtrain::onednn {
namespace {

using dnnl::memory;

// One convolution's layouts. Activations are given; the weights' format is oneDNN's choice, and
// each step reorders from or into the flat buffer, through scratch memory that is still in cache.
struct ConvolutionGeometry {
  ConvolutionGeometry(const Window& window, const Tensor& x, const Tensor& y)
      : source(desc_of(x)),
        destination(desc_of(y)),
        strides{window.stride_y, window.stride_x},
        before{window.top, window.left},
        after{window.bottom, window.right} {
    memory::dims weights{y.shape.channels, x.shape.channels, window.height, window.width};
    flat = {weights, memory::data_type::f32, memory::format_tag::ohwi};
    // A blocked source of less than a block has only a reference kernel. Its padding is zero, so it
    // may as well be called channels.
    if (x.block > 1) weights[1] = source.data.dims[1] = std::max(x.shape.channels, x.block);
    any = {weights, memory::data_type::f32, memory::format_tag::any};
    bias = {{y.shape.channels}, memory::data_type::f32, memory::format_tag::x};
  }

  memory::desc source, destination, flat, any, bias;
  memory::dims strides, before, after;
};

using Algorithm = dnnl::algorithm;
constexpr auto direct = Algorithm::convolution_direct, winograd = Algorithm::convolution_winograd;

// Winograd's algorithm makes 3x3 convolutions of many channels up to twice as fast, with errors
// below 1e-5 of the largest result; with 16 channels it is slower. Bounds are those of the measured
// gain, and the last one keeps its scratch memory from exceeding the activations by far.
constexpr int fewest_for_activations = 32, fewest_for_weights = 64;
constexpr std::size_t most_winograd_scratch = std::size_t{256} << 20;

bool suits_winograd(const ConvolutionGeometry& g, const Window& w, int fewest_channels) {
  const auto channels = std::min(g.flat.data.dims[0], g.flat.data.dims[1]);
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
  const auto desc =
      bias ? dnnl::convolution_forward::desc(training, algorithm, g.source, g.any, g.bias,
                                             g.destination, g.strides, g.before, g.after)
           : dnnl::convolution_forward::desc(training, algorithm, g.source, g.any, g.destination,
                                             g.strides, g.before, g.after);
  dnnl::primitive_attr attr = attributes();
  if (relu) {
    dnnl::post_ops epilogue;
    epilogue.append_eltwise(1, Algorithm::eltwise_relu, 0, 0);
    attr.set_post_ops(epilogue);
  }
  return {desc, attr, engine, algorithm == winograd};
}

// A backward step's descriptor; oneDNN wants that of the forward step as a hint.
template <class Primitive>
typename Primitive::primitive_desc backward_desc(const typename Primitive::desc& desc,
                                                 const ConvolutionGeometry& g, Algorithm algorithm,
                                                 bool bias, const dnnl::engine& engine) {
  const auto forward = forward_desc(g, algorithm, bias, false, engine);
  if (!forward) return {};
  return {desc, attributes(), engine, forward, algorithm == winograd};
}

// A step's weights, in the format that oneDNN chose for it, in scratch memory.
class Weights {
 public:
  Weights(const memory::desc& chosen, const ConvolutionGeometry& g, float* flat, Planner& planner)
      : planner_(planner), place_(planner.scratch(chosen.get_size())) {
    memory::desc unpadded = chosen;  // the same bytes; what is beyond the flat ones is padding
    unpadded.data.dims[1] = g.flat.data.dims[1];
    flat_ = planner.memory(g.flat, flat);
    stored_ = planner.memory(unpadded, place_);
    chosen_ = planner.memory(chosen, place_);
  }
  const memory& chosen() const { return chosen_; }
  BoundPrimitive from_flat() const { return reorder(flat_, stored_); }
  BoundPrimitive to_flat() const { return reorder(stored_, flat_); }

 private:
  BoundPrimitive reorder(const memory& from, const memory& to) const {
    const dnnl::reorder::primitive_desc desc(from, to, attributes());
    return planner_.bind<dnnl::reorder>(desc, {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}});
  }

  Planner& planner_;
  Scratch place_;
  memory flat_, stored_, chosen_;
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
                                            desc, std::move(arguments))](const Frame&) {
    format();
    convolve();
  };
}

Action plan(const ConvolutionInputGradient& step, Planner& planner) {
  using Primitive = dnnl::convolution_backward_data;
  const Tensor &dx = planner.tensor(step.dx), &dy = planner.tensor(step.dy);
  const ConvolutionGeometry g(step.window, dx, dy);
  const auto desc =
      fastest(suits_winograd(g, step.window, fewest_for_activations), [&](Algorithm algorithm) {
        return backward_desc<Primitive>(
            {algorithm, g.source, g.any, g.destination, g.strides, g.before, g.after}, g, algorithm,
            false, planner.engine());
      });
  const Weights weights(desc.weights_desc(), g, planner.parameters(step.w), planner);

  return [format = weights.from_flat(),
          convolve = planner.bind<Primitive>(
              desc, {{DNNL_ARG_DIFF_DST, planner.memory(dy)},
                     {DNNL_ARG_WEIGHTS, weights.chosen()},
                     {DNNL_ARG_DIFF_SRC, planner.memory(g.source, dx.data)}})](const Frame&) {
    format();
    convolve();
  };
}

Action plan(const ConvolutionWeightGradient& step, Planner& planner) {
  using Primitive = dnnl::convolution_backward_weights;
  const Tensor &x = planner.tensor(step.x), &dy = planner.tensor(step.dy);
  const ConvolutionGeometry g(step.window, x, dy);
  const auto operation = [&](Algorithm algorithm) {
    return step.b ? Primitive::desc(algorithm, g.source, g.any, g.bias, g.destination, g.strides,
                                    g.before, g.after)
                  : Primitive::desc(algorithm, g.source, g.any, g.destination, g.strides, g.before,
                                    g.after);
  };
  const auto desc =
      fastest(suits_winograd(g, step.window, fewest_for_weights), [&](Algorithm algorithm) {
        return backward_desc<Primitive>(operation(algorithm), g, algorithm, step.b.has_value(),
                                        planner.engine());
      });
  const Weights weights(desc.diff_weights_desc(), g, planner.gradients(step.w), planner);
  std::vector<std::pair<int, memory>> arguments{{DNNL_ARG_SRC, planner.memory(g.source, x.data)},
                                                {DNNL_ARG_DIFF_DST, planner.memory(dy)},
                                                {DNNL_ARG_DIFF_WEIGHTS, weights.chosen()}};
  if (step.b)
    arguments.emplace_back(DNNL_ARG_DIFF_BIAS, planner.memory(g.bias, planner.gradients(*step.b)));

  return [correlate = planner.bind<Primitive>(desc, std::move(arguments)),
          format = weights.to_flat()](const Frame&) {
    correlate();
    format();
  };
}

}  // namespace ringtrain::onednn
