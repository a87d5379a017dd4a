#include "model/model_file/operations.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "ringtrain/base/error.hpp"
#include "ringtrain/base/text.hpp"

namespace ringtrain::model {
namespace {

constexpr std::size_t one = 1, two = 2, many = 1000;
constexpr double large = 1e6;

// What torch calls a layer's fans: values that a result is made of, and results of a channel of x.
// Of a convolution in groups torch does not divide the second.
struct Fans {
  double in, out;
  int groups = 1;
  double filters = 0;  ///< of a convolution
};

// Also the weights' number: a product that no integer holds must not wrap around.
void check_weights(const Fans& fans, double weights) {
  if (weights > most_values)
    throw Error(Exit::usage, fmt::format("{:.0f} weights", weights),
                fmt::format("a network has at most {:.0f} (fan-in {:.0f}, fan-out {:.0f})",
                            most_values, fans.in, fans.out));
}

Initialiser read_initialiser(const std::string& text, const Fans& fans) {
  using enum Initialiser::Kind;
  if (text == "he_fan_in") return {normal, std::sqrt(2.0 / fans.in)};
  if (text == "he_fan_out") return {normal, std::sqrt(2.0 / fans.out)};
  if (text == "he_group_fan_out") return {normal, std::sqrt(2.0 * fans.groups / fans.out)};
  if (text == "uniform_fan_in") return {uniform, 1 / std::sqrt(fans.in)};
  if (text == "uniform_fan_out") return {uniform, 1 / std::sqrt(fans.out)};
  const std::vector<std::string> parts = split(text, ':');
  const auto value = [&] { return number_or_quotient(parts[1], 0, large); };
  if (parts.size() == 2 && parts[0] == "normal") return {normal, value()};
  if (parts.size() == 2 && parts[0] == "truncated_normal") return {truncated_normal, value()};
  if (parts.size() == 2 && parts[0] == "uniform") return {uniform, value()};
  if (parts.size() == 2 && parts[0] == "whitening") {
    if (fans.filters != 2 * fans.in)
      throw BadValue(
          fmt::format("whitens windows of {:.0f} values with twice as many channels", fans.in));
    return {whitening, value()};
  }
  throw BadValue(
      "must be he_fan_in, he_fan_out, he_group_fan_out, uniform_fan_in, uniform_fan_out, "
      "normal:DEVIATION, truncated_normal:DEVIATION, uniform:BOUND or whitening:EPSILON");
}

Initialiser initialiser(const Values& values, const std::string& usual, const Fans& fans) {
  return values.read("init", usual,
                     [&](const std::string& text) { return read_initialiser(text, fans); });
}

// A first value, `none`, or torch's: uniform_fan_in.
std::optional<Initialiser> initial_bias(const Values& values, std::optional<double> usual,
                                        const Fans& fans) {
  if (values.has("bias") && values.text("bias", "") == "uniform_fan_in")
    return read_initialiser("uniform_fan_in", fans);
  return values.number_or_none("bias", -large, large, usual);
}

// same, valid, or so many pixels on each side, at most `most`.
template <class Options>
void read_padding(const Values& values, Padding usual, int most, Options& o) {
  const std::string text = values.text("padding", usual == Padding::same ? "same" : "valid");
  o.padding = text == "same" ? Padding::same : Padding::valid;
  if (text != "same" && text != "valid") o.symmetric_padding = values.whole("padding", 0, most);
}

compute::TensorId convolution(const LayerLine& line) {
  const auto [height, width] = line.values.extent("kernel", largest_window);
  GraphBuilder::ConvolutionOptions o;
  o.channels = line.values.whole("channels", 1, most_channels);
  o.height = height;
  o.width = width;
  o.stride = line.values.whole("stride", 1, largest_window, 1);
  o.groups = line.values.whole("groups", 1, most_channels, 1);
  read_padding(line.values, Padding::same, std::min(height, width) - 1, o);
  const double pixels = double(height) * width;
  const Fans fans{pixels * line.shape().channels / o.groups, pixels * o.channels, o.groups,
                  double(o.channels)};
  check_weights(fans, fans.in * o.channels);
  o.initial = initialiser(line.values, "he_fan_out", fans);
  o.initial.dirac = line.values.yes("dirac", false);
  if (o.initial.dirac && (o.groups > 1 || height % 2 == 0 || width % 2 == 0))
    throw Error(Exit::usage, "dirac=yes", "needs a kernel with a middle, and one group");
  o.bias = initial_bias(line.values, std::nullopt, fans);
  o.decay = line.values.yes("decay", true);
  return line.graph.convolution(line.name, line.x(), o);
}

compute::TensorId linear(const LayerLine& line) {
  GraphBuilder::ConvolutionOptions o;
  o.linear = true;
  o.channels = line.values.whole("channels", 1, most_channels);
  const Fans fans{double(line.shape().channels), double(o.channels)};
  check_weights(fans, fans.in * fans.out);
  o.initial = initialiser(line.values, "uniform_fan_in", fans);
  o.bias = initial_bias(line.values, 0, fans);
  o.decay = line.values.yes("decay", true);
  return line.graph.convolution(line.name, line.x(), o);
}

compute::TensorId matrix_product(const LayerLine& line) {
  const int outputs = line.values.whole("outputs", 1, most_channels);
  const Fans fans{double(line.shape().features()), double(outputs)};
  check_weights(fans, fans.in * fans.out);
  return line.graph.matrix_product(
      line.name, line.x(), outputs, initialiser(line.values, "uniform_fan_in", fans),
      initial_bias(line.values, 0, fans), line.values.yes("decay", true));
}

compute::TensorId batch_norm(const LayerLine& line) {
  GraphBuilder::BatchNormOptions o;
  const auto gamma = line.values.number_or_none("gamma", -large, large, o.gamma_value);
  o.gamma = gamma.has_value();
  o.gamma_value = gamma.value_or(1);
  o.epsilon = float(line.values.number("epsilon", 1e-12, 1, o.epsilon));
  o.momentum = float(line.values.number("momentum", 0, 1, o.momentum));
  o.unbiased = line.values.choice("variance", {"unbiased", "biased"}, "unbiased") == "unbiased";
  return line.graph.batch_norm(line.name, line.x(), o);
}

compute::TensorId pointwise(const LayerLine& line) {
  return line.graph.pointwise(line.x(), *compute::activation_named(line.word));
}

compute::TensorId sum(const LayerLine& line) {
  return line.graph.sum(line.inputs[0], line.inputs[1]);
}

compute::TensorId scale(const LayerLine& line) {
  return line.graph.scale(line.inputs[0], line.inputs[1]);
}

compute::TensorId layer_scale(const LayerLine& line) {
  return line.graph.layer_scale(line.name, line.x(),
                                line.values.number("init", -large, large, 1e-6),
                                line.values.yes("decay", true));
}

compute::TensorId layer_norm(const LayerLine& line) {
  return line.graph.layer_norm(line.name, line.x(),
                               float(line.values.number("epsilon", 1e-12, 1, 1e-6)));
}

compute::TensorId multiply(const LayerLine& line) {
  return line.graph.multiply(line.x(), float(line.values.number("factor", -large, large, 1)));
}

compute::TensorId concat(const LayerLine& line) {
  double values = 0;
  for (const compute::TensorId id : line.inputs) values += double(line.graph.shape(id).features());
  if (values > most_values)
    throw Error(Exit::usage, "concat", fmt::format("{:.0f} values in all are too many", values));
  return line.graph.beside(line.inputs);
}

compute::TensorId shortcut(const LayerLine& line) {
  const int channels = line.shape().channels;
  return line.graph.shortcut(
      line.x(), line.values.whole("stride", 1, largest_window, 1),
      line.values.whole("channels", channels, std::max(channels, most_channels), channels));
}

GraphBuilder::PoolOptions pool_options(const Values& values) {
  GraphBuilder::PoolOptions o;
  o.size = values.whole("size", 1, largest_window);
  o.stride = values.whole("stride", 1, largest_window, o.size);
  read_padding(values, Padding::valid, o.size / 2, o);
  return o;
}
compute::TensorId max_pool(const LayerLine& line) {
  return line.graph.max_pool(line.x(), pool_options(line.values));
}
compute::TensorId average_pool(const LayerLine& line) {
  GraphBuilder::PoolOptions o = pool_options(line.values);
  o.counts_padding = line.values.yes("count-padding", false);
  return line.graph.average_pool(line.x(), o);
}
compute::TensorId blur_pool(const LayerLine& line) {
  const int size = line.values.whole("size", 1, 31, 3);
  if (size % 2 == 0) throw Error(Exit::usage, "size", "of a blur_pool is odd");
  return line.graph.blur_pool(line.x(), size, line.values.whole("stride", 1, largest_window, 2));
}
compute::TensorId reflect_pad(const LayerLine& line) {
  return line.graph.reflect_pad(line.x(), line.values.whole("border", 1, largest_window));
}
compute::TensorId global_pool(const LayerLine& line) { return line.graph.global_pool(line.x()); }

compute::TensorId lrn(const LayerLine& line) {
  compute::attributes::Lrn o;
  o.radius = line.values.whole("radius", 1, 64, o.radius);
  o.bias = float(line.values.number("bias", 1e-6, large, o.bias));
  o.alpha = float(line.values.number("alpha", 0, large, o.alpha));
  o.beta = float(line.values.number("beta", 0, 100, o.beta));
  return line.graph.lrn(line.x(), o);
}

compute::TensorId dropout(const LayerLine& line) {
  return line.graph.dropout(line.x(), float(line.values.number("keep", 0.001, 1, 0.5)));
}

compute::TensorId stochastic_depth(const LayerLine& line) {
  return line.graph.dropout(line.x(), float(line.values.number("keep", 0.001, 1, 0.8)), true);
}

compute::TensorId loss(const LayerLine& line) {
  const compute::Shape& logits = line.shape();
  if (logits != compute::Shape{1, 1, 1, line.classes})
    throw Error(Exit::usage, "loss",
                fmt::format("its input is {}x{}x{}, not 1x1x{}: one value for each class (outputs="
                            "$classes)",
                            logits.height, logits.width, logits.channels, line.classes));
  line.graph.loss(line.x(), {float(line.values.number("weight", 0, large, 1)),
                             line.values.yes("auxiliary", false)});
  return compute::no_tensor;
}

constexpr OperationEntry own_entries[] = {
    {"convolution", one, one, true, "channels kernel stride groups padding init dirac bias decay",
     convolution},
    {"linear", one, one, true, "channels init bias decay", linear},
    {"matrix_product", one, one, true, "outputs init bias decay", matrix_product},
    {"batch_norm", one, one, true, "gamma epsilon momentum variance", batch_norm},
    {"sum", two, two, false, "", sum},
    {"scale", two, two, false, "", scale},
    {"layer_scale", one, one, true, "init decay", layer_scale},
    {"layer_norm", one, one, true, "epsilon", layer_norm},
    {"multiply", one, one, false, "factor", multiply},
    {"concat", two, many, false, "", concat},
    {"shortcut", one, one, false, "stride channels", shortcut},
    {"max_pool", one, one, false, "size stride padding", max_pool},
    {"average_pool", one, one, false, "size stride padding count-padding", average_pool},
    {"blur_pool", one, one, false, "size stride", blur_pool},
    {"reflect_pad", one, one, false, "border", reflect_pad},
    {"global_pool", one, one, false, "", global_pool},
    {"lrn", one, one, false, "radius bias alpha beta", lrn},
    {"dropout", one, one, false, "keep", dropout},
    {"stochastic_depth", one, one, false, "keep", stochastic_depth},
    {"loss", one, one, false, "weight auxiliary", loss},
};

// With a word for each activation.
std::vector<OperationEntry> make_entries() {
  std::vector<OperationEntry> all(std::begin(own_entries), std::end(own_entries));
  for (const compute::ActivationFacts& f : compute::activation_facts)
    if (compute::activation_named(f.name)) all.push_back({f.name, one, one, false, "", pointwise});
  return all;
}
const std::vector<OperationEntry>& entries() {
  static const std::vector<OperationEntry> all = make_entries();
  return all;
}

std::vector<float> floats(const std::vector<double>& numbers) {
  return {numbers.begin(), numbers.end()};
}

}  // namespace

const OperationEntry* find_operation(std::string_view word) {
  const auto found = std::ranges::find(entries(), word, &OperationEntry::word);
  return found == entries().end() ? nullptr : &*found;
}

std::vector<std::string> operation_words() {
  std::vector<std::string> words;
  for (const OperationEntry& entry : entries()) words.emplace_back(entry.word);
  return words;
}

compute::TensorId add_input(GraphBuilder& graph, const Values& values) {
  const auto [height, width] = values.extent("size", largest_image);
  const int channels = values.whole("channels", 1, 4, 3);
  ImageInput image;
  image.clip = values.yes("clip", false);
  if (values.yes("standardise", false)) {
    if (values.has("mean") || values.has("deviation"))
      throw Error(Exit::usage, "standardise=yes", "takes each image's own mean and deviation");
    if (image.clip)
      throw Error(Exit::usage, "clip=yes", "needs mean and deviation; leave standardise out");
    image.normalisation = compute::Normalisation::standardise_image;
  } else {
    const auto usual = [&](double v) { return std::vector<double>(channels, v); };
    image.mean = floats(values.numbers("mean", ',', -large, large, usual(0.5)));
    image.deviation = floats(values.numbers("deviation", ',', 1e-6, large, usual(0.25)));
  }
  return graph.input(height, width, channels, image);
}

}  // namespace ringtrain::model
