#include <fmt/core.h>

#include <algorithm>

#include "ringtrain/base/error.hpp"
#include "ringtrain/model/graph.hpp"

namespace ringtrain::model {
namespace {

std::string text(const compute::Shape& s) {
  return fmt::format("{}x{}x{}", s.height, s.width, s.channels);
}

// Padding before and after one side of an image.
struct Sides {
  int before, after;
};

Sides padding_of(int size, int kernel, int stride, Padding padding) {
  if (padding == Padding::valid) return {0, 0};
  const int out = (size + stride - 1) / stride;
  const int total = std::max((out - 1) * stride + kernel - size, 0);
  return {total / 2, total - total / 2};
}

compute::Window window_of(const compute::Shape& x, int height, int width, int stride,
                          Padding padding, std::optional<int> symmetric) {
  if (symmetric)
    return {height, width, stride, stride, *symmetric, *symmetric, *symmetric, *symmetric};
  const Sides vertical = padding_of(x.height, height, stride, padding);
  const Sides horizontal = padding_of(x.width, width, stride, padding);
  return {height,         width,           stride, stride, vertical.before, horizontal.before,
          vertical.after, horizontal.after};
}

compute::Shape after(const std::string& layer, const compute::Shape& x, const compute::Window& w,
                     int channels) {
  const int height = x.height + w.top + w.bottom - w.height;
  const int width = x.width + w.left + w.right - w.width;
  if (height < 0 || width < 0)
    throw Error(
        Exit::usage, "layer " + layer,
        fmt::format("its {}x{} window does not fit its {} input", w.height, w.width, text(x)));
  return {1, height / w.stride_y + 1, width / w.stride_x + 1, channels};
}

std::size_t size(int value) { return static_cast<std::size_t>(value); }

}  // namespace

compute::TensorId GraphBuilder::add(std::string name, Operation operation,
                                    std::vector<compute::TensorId> inputs, compute::Shape output) {
  graph_.tensors.push_back(output);
  const auto id = static_cast<compute::TensorId>(graph_.tensors.size() - 1);
  graph_.nodes.push_back({std::move(name), std::move(operation), std::move(inputs), id, block_});
  return id;
}

ParameterId GraphBuilder::parameter(Parameter parameter) {
  graph_.parameters.push_back(std::move(parameter));
  return static_cast<ParameterId>(graph_.parameters.size() - 1);
}

compute::TensorId GraphBuilder::input(int height, int width, int channels, ImageInput how) {
  expects(!how.clip || how.normalisation == compute::Normalisation::mean_deviation,
          "images that are clipped are normalised by mean and deviation");
  return add("input", std::move(how), {}, {1, height, width, channels});
}

compute::TensorId GraphBuilder::convolution(const std::string& name, compute::TensorId x,
                                            const ConvolutionOptions& o) {
  const compute::Shape& in = shape(x);
  const compute::Window window =
      window_of(in, o.height, o.width, o.stride, o.padding, o.symmetric_padding);
  const compute::Shape out = after(name, in, window, o.channels);
  if (in.channels % o.groups != 0 || o.channels % o.groups != 0)
    throw Error(Exit::usage, "layer " + name,
                fmt::format("{} groups do not divide its {} channels into {}", o.groups,
                            in.channels, o.channels));
  const std::size_t seen = size(in.channels / o.groups);
  std::vector<std::size_t> dims{size(o.channels), size(o.height), size(o.width), seen};
  if (o.linear) dims = {size(o.channels), seen};
  Convolution convolution{{window, o.groups}};
  convolution.w =
      parameter({name + ".weight", std::move(dims), Parameter::Role::weight, o.initial, o.decay});
  if (o.bias)
    convolution.b = parameter({name + ".bias", {size(o.channels)}, Parameter::Role::bias, *o.bias});
  return add(name, convolution, {x}, out);
}

compute::TensorId GraphBuilder::matrix_product(const std::string& name, compute::TensorId x,
                                               int outputs, Initialiser weights,
                                               std::optional<Initialiser> bias, bool decay) {
  MatrixProduct product;
  product.w = parameter({name + ".weight",
                         {size(outputs), shape(x).features()},
                         Parameter::Role::weight,
                         weights,
                         decay});
  if (bias) product.b = parameter({name + ".bias", {size(outputs)}, Parameter::Role::bias, *bias});
  return add(name, product, {x}, {1, 1, 1, outputs});
}

compute::TensorId GraphBuilder::batch_norm(const std::string& name, compute::TensorId x,
                                           const BatchNormOptions& o) {
  const std::size_t channels = size(shape(x).channels);
  BatchNorm norm{std::nullopt, 0, 0, o.epsilon, o.unbiased};
  if (o.gamma)
    norm.gamma = parameter({name + ".weight",
                            {channels},
                            Parameter::Role::gamma,
                            {Initialiser::Kind::constant, o.gamma_value}});
  norm.beta = parameter({name + ".bias", {channels}, Parameter::Role::beta, {}});
  graph_.statistics.push_back({name, channels, o.momentum});
  norm.statistics = static_cast<StatisticId>(graph_.statistics.size() - 1);
  return add(name, norm, {x}, shape(x));
}

compute::TensorId GraphBuilder::pointwise(compute::TensorId x, compute::Activation f) {
  return add(std::string(name_of(f)), Pointwise{f}, {x}, shape(x));
}

compute::TensorId GraphBuilder::sum(compute::TensorId a, compute::TensorId b) {
  if (shape(a) != shape(b))
    throw Error(Exit::usage, "sum",
                fmt::format("its inputs are {} and {}", text(shape(a)), text(shape(b))));
  return add("sum", Sum{}, {a, b}, shape(a));
}

compute::TensorId GraphBuilder::scale(compute::TensorId x, compute::TensorId factors) {
  if (shape(factors) != compute::Shape{1, 1, 1, shape(x).channels})
    throw Error(Exit::usage, "scale",
                fmt::format("its inputs are {} and {}, not 1x1x{}", text(shape(x)),
                            text(shape(factors)), shape(x).channels));
  return add("scale", Scale{}, {x, factors}, shape(x));
}

compute::TensorId GraphBuilder::layer_scale(const std::string& name, compute::TensorId x,
                                            double initial, bool decay) {
  const ParameterId w =
      parameter({name, {size(shape(x).channels)}, Parameter::Role::weight, initial, decay});
  return add(name, LayerScale{w}, {x}, shape(x));
}

compute::TensorId GraphBuilder::layer_norm(const std::string& name, compute::TensorId x,
                                           float epsilon) {
  const std::vector<std::size_t> channels{size(shape(x).channels)};
  const ParameterId gamma = parameter({name + ".weight", channels, Parameter::Role::gamma, 1.0});
  const ParameterId beta = parameter({name + ".bias", channels, Parameter::Role::beta});
  return add(name, LayerNorm{gamma, beta, epsilon}, {x}, shape(x));
}

compute::TensorId GraphBuilder::multiply(compute::TensorId x, float factor) {
  return add("multiply", Multiply{factor}, {x}, shape(x));
}

compute::TensorId GraphBuilder::beside(const std::vector<compute::TensorId>& inputs) {
  compute::Shape out = shape(inputs.at(0));
  out.channels = 0;
  for (const compute::TensorId id : inputs) {
    if (shape(id).height != out.height || shape(id).width != out.width)
      throw Error(Exit::usage, "concatenation",
                  fmt::format("its inputs are {} and {}", text(shape(inputs[0])), text(shape(id))));
    out.channels += shape(id).channels;
  }
  return add("concat", Concat{}, inputs, out);
}

compute::TensorId GraphBuilder::shortcut(compute::TensorId x, int stride, int channels) {
  const compute::Shape& in = shape(x);
  return add("shortcut", Shortcut{stride}, {x},
             {1, (in.height + stride - 1) / stride, (in.width + stride - 1) / stride, channels});
}

compute::TensorId GraphBuilder::pool(compute::TensorId x, const PoolOptions& o, bool maximum) {
  const int sides = o.symmetric_padding;
  const compute::Window window =
      sides ? compute::Window{o.size, o.size, o.stride, o.stride, sides, sides, sides, sides}
            : window_of(shape(x), o.size, o.size, o.stride, o.padding, std::nullopt);
  const compute::Shape out = after("pool", shape(x), window, shape(x).channels);
  if (maximum) return add("max pool", MaxPool{window}, {x}, out);
  if (o.counts_padding && window != compute::Window{o.size, o.size, o.stride, o.stride}) {
    const auto taps = size(o.size) * size(o.size);
    return add("average pool",
               Filter{window, std::vector<float>(taps, 1 / static_cast<float>(taps))}, {x}, out);
  }
  return add("average pool", AveragePool{window}, {x}, out);
}

compute::TensorId GraphBuilder::max_pool(compute::TensorId x, const PoolOptions& o) {
  return pool(x, o, true);
}
compute::TensorId GraphBuilder::average_pool(compute::TensorId x, const PoolOptions& o) {
  return pool(x, o, false);
}

compute::TensorId GraphBuilder::reflect_pad(compute::TensorId x, int border) {
  const compute::Shape& in = shape(x);
  if (border >= std::min(in.height, in.width))
    throw Error(
        Exit::usage, "reflect_pad",
        fmt::format("a border of {} pixels is not narrower than its {} input", border, text(in)));
  return add("reflect pad", ReflectPad{border}, {x},
             {1, in.height + 2 * border, in.width + 2 * border, in.channels});
}

compute::TensorId GraphBuilder::blur_pool(compute::TensorId x, int size, int stride) {
  std::vector<double> line{1};
  while (static_cast<int>(line.size()) < size) {
    line.push_back(0);
    for (std::size_t i = line.size(); i-- > 1;) line[i] = (line[i] + line[i - 1]) / 2;
    line[0] /= 2;
  }
  Filter filter{{size, size, stride, stride}};
  for (const double row : line)
    for (const double column : line) filter.taps.push_back(static_cast<float>(row * column));
  x = reflect_pad(x, size / 2);
  return add("blur pool", filter, {x},
             after("blur pool", shape(x), filter.window, shape(x).channels));
}

compute::TensorId GraphBuilder::global_pool(compute::TensorId x) {
  const compute::Shape& in = shape(x);
  return add("global pool", AveragePool{compute::Window{in.height, in.width}}, {x},
             {1, 1, 1, in.channels});
}

compute::TensorId GraphBuilder::lrn(compute::TensorId x, const compute::attributes::Lrn& how) {
  return add("lrn", Lrn{how}, {x}, shape(x));
}

compute::TensorId GraphBuilder::dropout(compute::TensorId x, float keep, bool of_sample) {
  const auto layer = static_cast<std::uint32_t>(dropouts_++);
  return add(of_sample ? "stochastic depth" : "dropout", DropoutLayer{{keep, layer, of_sample}},
             {x}, shape(x));
}

void GraphBuilder::loss(compute::TensorId logits, Loss how) {
  graph_.nodes.push_back(
      {how.auxiliary ? "auxiliary loss" : "loss", how, {logits}, compute::no_tensor});
}

}  // namespace ringtrain::model
