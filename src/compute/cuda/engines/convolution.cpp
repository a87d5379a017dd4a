#include "compute/cuda/engines/convolution.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <set>
#include <variant>

#include "compute/cuda/engines/operation_graph.hpp"

namespace ringtrain::compute::cuda {
namespace {

using Tensor = OperationGraph::Tensor;

std::string text_of(const Convolution& c, Element element) {
  const auto& [w, x, y] = c;
  return fmt::format("{} {}x{}x{}x{} -> {}x{}x{}, {}x{} stride {},{} padding {},{},{},{}",
                     name_of(element), x.batch, x.height, x.width, x.channels, y.height, y.width,
                     y.channels, w.height, w.width, w.stride_y, w.stride_x, w.top, w.left, w.bottom,
                     w.right);
}

double flops_of(const Window& window, const Shape& x, const Shape& y) {
  return 2. * double(y.elements()) * window.height * window.width * x.channels;
}

// A question about one convolution, as stored.
Request about(const Schedule& schedule, const ConvolutionShape& window, TensorId x, TensorId y,
              Element e, std::string pattern,
              std::function<OperationGraph(const Convolution&)> graph) {
  if (!window.is_plain())
    throw Error("convolution on a GPU", "cuDNN gets none of groups or dilation");
  const Shape &from = schedule.tensors[x], &to = schedule.tensors[y];
  const Convolution at = stored(window, from, to, e);
  return {std::move(pattern), text_of(at, e), flops_of(window, from, to),
          [=] { return graph(at); }};
}

// A question about a matrix product: a convolution of one pixel a sample.
Request about(const Shape& x, const Shape& y, Element e, std::string pattern,
              std::function<OperationGraph(const Convolution&)> graph) {
  const Shape from{x.batch, 1, 1, static_cast<int>(x.features())},
      to{y.batch, 1, 1, static_cast<int>(y.features())};
  const Convolution at{{}, from, to};
  return {std::move(pattern), text_of(at, e), flops_of({}, from, to), [=] { return graph(at); }};
}

// The same question, where tensors of the step are slices of wider ones.
Request on_slices(const Schedule& schedule, const Step& step, Request request) {
  std::map<TensorId, std::int64_t> pitches;
  int place = 0;
  for_each_tensor(step, [&](TensorId id, Access) {
    ++place;
    if (!schedule.is_slice(id)) return;
    pitches[id] = schedule.tensors[schedule.place_of(id).of].channels;
    request.shape += fmt::format(", tensor {} of {} channels", place, pitches[id]);
  });
  if (pitches.empty()) return request;
  request.pattern += ", on slices";
  request.graph = [pitches, graph = std::move(request.graph)] {
    OperationGraph g = graph();
    g.set_pitches(pitches);
    return g;
  };
  return request;
}

// relu?(x * scale + bias (+ residual (* scale + bias))), in the type of the activations throughout,
// as cuDNN's engines want it.
Tensor activate(OperationGraph& g, const AppliedNorm& how, Tensor x, const Shape& shape,
                Element e) {
  const auto vector = [&](VectorId id) {
    return g.vector(shape.channels, VectorOperand{.id = id, .narrow = true}, e);
  };
  const auto norm = [&](Tensor t, VectorId scale, VectorId bias) {
    const Tensor s = vector(scale), b = vector(bias);
    return g.add(g.multiply(t, s), b);
  };
  Tensor a = norm(x, how.scale, how.bias);
  if (how.residual != no_tensor) {
    const Tensor residual = g.input(shape, TensorOperand{how.residual});
    a = g.add(a, how.residual_scale != no_vector
                     ? norm(residual, how.residual_scale, how.residual_bias)
                     : residual);
  }
  if (how.then == Activation::relu) a = g.relu(a);
  if (how.y != no_tensor) g.store(a, TensorOperand{how.y});
  return a;
}

std::string name_of(const AppliedNorm& how) {
  std::string text = "bn(x)";
  if (how.residual != no_tensor)
    text += how.residual_scale != no_vector ? " + bn(residual)" : " + residual";
  if (how.then == Activation::relu) text = "relu(" + text + ")";
  return text + (how.y != no_tensor ? " (written)" : "");
}

// A training BatchNorm in its backward pass: its input and what is known of its channels.
struct Norm {
  const BatchNormSums& how;
  Tensor x, mean, inverse_deviation, gamma;
  Norm(OperationGraph& g, const BatchNormSums& sums, const Shape& shape)
      : how(sums),
        x(g.input(shape, TensorOperand{sums.x})),
        mean(g.vector(shape.channels, VectorOperand{sums.mean})),
        inverse_deviation(g.vector(shape.channels, VectorOperand{sums.inverse_deviation})),
        gamma(g.vector(shape.channels, how.gamma ? Operand(ParameterOperand{*how.gamma})
                                                 : OnesOperand{shape.channels})) {}
  Tensor output(OperationGraph& g, int channels) const {
    const Tensor normal = g.multiply(g.subtract(x, mean), inverse_deviation);
    return g.add(g.multiply(normal, gamma), g.vector(channels, LoweredBetaOperand{how.beta}));
  }
  void sums(OperationGraph& g, Tensor dy, int channels) const {
    const Operand dgamma =
        how.gamma ? Operand(GradientOperand{*how.gamma}) : UnwantedOperand{channels};
    g.batch_norm_sums(
        dy, x,
        {mean, inverse_deviation, gamma, dgamma, GradientOperand{how.beta},
         VectorOperand{how.g_scale}, VectorOperand{how.x_scale}, VectorOperand{how.shift}});
  }
};

// The ReLU's mask is made anew from what the ReLU was applied to, as cuDNN's engines want it.
void sums_of(OperationGraph& g, const ConvolutionInputGradient& s, Tensor dx, const Shape& shape) {
  const BatchNormSums& how = *s.epilogue;
  if ((how.residual_scale != no_vector) != s.epilogue_of_residual.has_value())
    throw Error("convolution", "a scaled branch without the sums of its BatchNorm, or the reverse");
  if (how.skip != no_tensor) dx = g.add(dx, g.input(shape, TensorOperand{how.skip}));
  const Norm norm(g, how, shape);
  std::optional<Norm> branch;
  if (s.epilogue_of_residual) branch.emplace(g, *s.epilogue_of_residual, shape);
  if (how.then == Activation::relu) {
    Tensor y =
        how.y != no_tensor ? g.input(shape, TensorOperand{how.y}) : norm.output(g, shape.channels);
    if (branch)
      y = g.add(y, branch->output(g, shape.channels));
    else if (how.y == no_tensor && how.residual != no_tensor)
      y = g.add(y, g.input(shape, TensorOperand{how.residual}));
    dx = g.relu_gradient(dx, y);
  }
  g.store(dx, TensorOperand{how.g});
  norm.sums(g, dx, shape.channels);
  if (branch) branch->sums(g, dx, shape.channels);
}

std::string name_of(const BatchNormSums& how) {
  std::string text = how.skip != no_tensor ? " + skip" : "";
  std::string mask = how.y != no_tensor ? "y" : "bn(x)";
  if (how.residual_scale != no_vector)
    mask += " + bn(residual)";
  else if (how.residual != no_tensor)
    mask += " + residual";
  if (how.then == Activation::relu) text += " -> relu'(" + mask + ")";
  return text + " -> sums for bn'";
}

// x * w of any step that has them.
template <class Kind>
Tensor product(OperationGraph& g, const Kind& s, const Convolution& at, Tensor x) {
  const Tensor w = g.weights(at.y.channels, at.window, at.x.channels, WeightsOperand{s.w});
  return g.convolution(at.window, x, w, at.y);
}

template <class Kind>
OperationGraph forward(const Kind& s, const Convolution& at, bool bias, bool relu, Element e) {
  OperationGraph g(e, bias || relu ? Element::fp32 : e);
  const Tensor x = g.input(at.x, TensorOperand{s.x});
  Tensor y = product(g, s, at, x);
  if (bias) y = g.add(y, g.vector(at.y.channels, ParameterOperand{*s.b, true}, e));
  if (relu) y = g.relu(y);
  g.store(y, TensorOperand{s.y});
  return g;
}

bool writes_input(const AppliedNorm& how, const ConvolutionShape& window) {
  return window == ConvolutionShape() && how.residual != no_tensor;
}

OperationGraph around_batch_norm(const ConvolutionForward& s, const Convolution& at, Element e) {
  if (s.b || s.then != Activation::none)
    throw Error("convolution", "statistics behind a bias or ReLU");
  // Of others, cuDNN 9.19 makes plans for an H100, too, which leave that tensor as it was.
  if (s.prologue && s.prologue->y != no_tensor && !writes_input(*s.prologue, at.window))
    throw Error(Exit::usage, "convolution",
                "only a sum that a 1x1 convolution reads is written by its engine");
  OperationGraph g(e, e);
  Tensor x = g.input(at.x, TensorOperand{s.x});
  if (s.prologue) x = activate(g, *s.prologue, x, at.x, e);
  const Tensor y = product(g, s, at, x);
  g.store(y, TensorOperand{s.y});
  if (s.sums != no_vector)
    g.statistics(y, VectorOperand{s.sums}, VectorOperand{s.sums, at.y.channels});
  return g;
}

template <class Kind>
OperationGraph input_gradient(const Kind& s, const Convolution& at, Element e) {
  OperationGraph g(e, Element::fp32);
  const Tensor dy = g.input(at.y, TensorOperand{s.dy});
  const Tensor w = g.weights(at.y.channels, at.window, at.x.channels, WeightsOperand{s.w});
  const Tensor dx = g.input_gradient(at.window, dy, w, at.x);
  if constexpr (requires { s.epilogue; })
    if (s.epilogue) {
      sums_of(g, s, dx, at.x);
      return g;
    }
  g.store(dx, TensorOperand{s.dx});
  return g;
}

template <class Kind>
OperationGraph weight_gradient(const Kind& s, const Convolution& at, Element e) {
  OperationGraph g(e, e);
  const Tensor dy = g.input(at.y, TensorOperand{s.dy});
  Tensor x = g.input(at.x, TensorOperand{s.x});
  if constexpr (requires { s.prologue; })
    if (s.prologue) x = activate(g, *s.prologue, x, at.x, e);
  g.store(g.weight_gradient(at.window, dy, x, at.y.channels, at.x.channels),
          WeightGradientOperand{s.w});
  return g;
}

std::string forward_pattern(bool bias, bool relu) {
  return fmt::format("convolution{}{}", bias ? " -> + bias" : "", relu ? " -> relu" : "");
}

constexpr int fewest_channels = 8;

// Of one axis: blocks of two pixels that a window touches.
int blocks(int size, int padding) { return (padding + 1) / 2 + (size - 1 - padding) / 2 + 1; }

}  // namespace

bool is_ours(const Schedule& schedule, const ConvolutionShape& window, TensorId x) {
  if (window.groups > 1) return true;
  return schedule.tensors[x].channels < fewest_channels &&
         std::ranges::none_of(schedule.steps, [&](const Step& step) {
           const auto* input = std::get_if<Input>(&step);
           return input && input->y == x;
         });
}

Convolution stored(const ConvolutionShape& w, const Shape& x, const Shape& y, Element element) {
  if (x.channels >= fewest_channels) return {w, x, y};
  Shape wide = x;
  wide.channels = element == Element::fp32 && x.channels <= 4 ? 4 : 8;
  if (element == Element::fp32 || x.channels > 4 || w.stride_y != 2 || w.stride_x != 2)
    return {w, wide, y};
  const int height = blocks(w.height, w.top), width = blocks(w.width, w.left);
  return {Window{height, 1},
          {x.batch, y.height + height - 1, y.width, width * StoredImage::block_channels},
          y};
}

std::map<TensorId, StoredImage> stored_images(const Schedule& schedule, Element element) {
  std::set<TensorId> images, ours;
  std::map<TensorId, StoredImage> result;
  for (const Step& step : schedule.steps) {
    if (const auto* s = std::get_if<Input>(&step)) images.insert(s->y);
    const auto* s = std::get_if<ConvolutionForward>(&step);
    if (s == nullptr) continue;
    if (is_ours(schedule, s->window, s->x)) {
      ours.insert(s->x);
      continue;
    }
    const Convolution form =
        stored(s->window, schedule.tensors[s->x], schedule.tensors[s->y], element);
    if (form.x == schedule.tensors[s->x]) continue;
    const auto [place, is_new] = result.emplace(s->x, StoredImage{s->window, form});
    if (!images.contains(s->x) || place->second.form.x != form.x)
      throw Error(
          "convolution on a GPU",
          fmt::format("it reads {} channels, which only the first layer may, all in one way",
                      schedule.tensors[s->x].channels));
  }
  for (const TensorId id : ours)
    if (result.contains(id))
      throw Error(Exit::usage, "convolution on a GPU",
                  "one in groups and one without read the same image, which they want stored "
                  "otherwise");
  return result;
}

std::vector<std::size_t> stored_bytes(const Schedule& schedule, Element element) {
  const auto images = stored_images(schedule, element);
  std::vector<std::size_t> bytes;
  for (TensorId id = 0; id < static_cast<TensorId>(schedule.tensors.size()); ++id) {
    const auto image = images.find(id);
    const Shape& shape = image == images.end() ? schedule.tensors[id] : image->second.form.x;
    bytes.push_back(shape.elements() * bytes_of(element));
  }
  return bytes;
}

Request request(const Schedule& schedule, const ConvolutionForward& s, Element e, bool fused) {
  const bool bias = fused && s.b, relu = fused && s.then == Activation::relu;
  if (!s.prologue && s.sums == no_vector)
    return on_slices(schedule, s,
                     about(schedule, s.window, s.x, s.y, e, forward_pattern(bias, relu),
                           [=](const Convolution& at) { return forward(s, at, bias, relu, e); }));
  return on_slices(schedule, s,
                   about(schedule, s.window, s.x, s.y, e,
                         (s.prologue ? name_of(*s.prologue) + " -> " : "") +
                             forward_pattern(s.b.has_value(), s.then == Activation::relu) +
                             (s.sums != no_vector ? " -> statistics" : ""),
                         [=](const Convolution& at) { return around_batch_norm(s, at, e); }));
}

Request request(const Schedule& schedule, const ConvolutionInputGradient& s, Element e) {
  return on_slices(schedule, s,
                   about(schedule, s.window, s.epilogue ? s.epilogue->g : s.dx, s.dy, e,
                         "input gradient" + (s.epilogue ? name_of(*s.epilogue) : "") +
                             (s.epilogue_of_residual ? " of both" : ""),
                         [=](const Convolution& at) { return input_gradient(s, at, e); }));
}

Request request(const Schedule& schedule, const ConvolutionWeightGradient& s, Element e) {
  return on_slices(schedule, s,
                   about(schedule, s.window, s.x, s.dy, e,
                         (s.prologue ? name_of(*s.prologue) + " -> " : "") + "weight gradient",
                         [=](const Convolution& at) { return weight_gradient(s, at, e); }));
}

Request request(const Schedule& schedule, const MatrixProductForward& s, Element e, bool fused) {
  const bool bias = fused && s.b, relu = fused && s.then == Activation::relu;
  return about(schedule.tensors[s.x], schedule.tensors[s.y], e, forward_pattern(bias, relu),
               [=](const Convolution& at) { return forward(s, at, bias, relu, e); });
}

Request request(const Schedule& schedule, const MatrixProductInputGradient& s, Element e) {
  return about(schedule.tensors[s.dx], schedule.tensors[s.dy], e, "input gradient",
               [=](const Convolution& at) { return input_gradient(s, at, e); });
}

Request request(const Schedule& schedule, const MatrixProductWeightGradient& s, Element e) {
  return about(schedule.tensors[s.x], schedule.tensors[s.dy], e, "weight gradient",
               [=](const Convolution& at) { return weight_gradient(s, at, e); });
}

namespace {

// In parts, what a fused step keeps inside is written and read; statistics read it once more.
std::size_t saved_bytes(const Schedule& schedule, const ConvolutionForward& s, Element e) {
  const Shape &x = schedule.tensors[s.x], &y = schedule.tensors[s.y];
  return bytes_of(e) *
         ((s.prologue ? 2 * x.elements() : 0) + (s.sums != no_vector ? y.elements() : 0));
}
std::size_t saved_bytes(const Schedule& schedule, const ConvolutionInputGradient& s, Element e) {
  return bytes_of(e) * 2 * schedule.tensors[s.epilogue->x].elements();
}
std::size_t saved_bytes(const Schedule& schedule, const ConvolutionWeightGradient& s, Element e) {
  return bytes_of(e) * 2 * schedule.tensors[s.x].elements();
}

template <class Kind>
Request with_savings(const Schedule& schedule, const Kind& s, Element e, Request request) {
  request.saved_bytes = saved_bytes(schedule, s, e);
  return request;
}

}  // namespace

std::optional<Request> fused_request(const Schedule& schedule, const Step& step, Element e) {
  if (const auto* s = std::get_if<ConvolutionForward>(&step))
    if (s->prologue || s->sums != no_vector)
      return with_savings(schedule, *s, e, request(schedule, *s, e, true));
  if (const auto* s = std::get_if<ConvolutionInputGradient>(&step))
    if (s->epilogue) return with_savings(schedule, *s, e, request(schedule, *s, e));
  if (const auto* s = std::get_if<ConvolutionWeightGradient>(&step))
    if (s->prologue) return with_savings(schedule, *s, e, request(schedule, *s, e));
  return std::nullopt;
}

}  // namespace ringtrain::compute::cuda
