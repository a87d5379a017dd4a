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

struct Fans {
  double in, out;
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
  if (text == "uniform_fan_in") return {uniform, 1 / std::sqrt(fans.in)};
  const std::vector<std::string> parts = split(text, ':');
  const auto value = [&] { return number_or_quotient(parts[1], 0, large); };
  if (parts.size() == 2 && parts[0] == "normal") return {normal, value()};
  if (parts.size() == 2 && parts[0] == "truncated_normal") return {truncated_normal, value()};
  if (parts.size() == 2 && parts[0] == "uniform") return {uniform, value()};
  throw BadValue(
      "must be he_fan_in, he_fan_out, uniform_fan_in, normal:DEVIATION, "
      "truncated_normal:DEVIATION or uniform:BOUND");
}

Initialiser initialiser(const Values& values, const std::string& usual, const Fans& fans) {
  return values.read("init", usual,
                     [&](const std::string& text) { return read_initialiser(text, fans); });
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
  read_padding(line.values, Padding::same, std::min(height, width) - 1, o);
  const double pixels = double(height) * width;
  const Fans fans{pixels * line.shape().channels, pixels * o.channels};
  check_weights(fans, fans.in * o.channels);
  o.initial = initialiser(line.values, "he_fan_out", fans);
  const auto bias = line.values.number_or_none("bias", -large, large, std::nullopt);
  o.bias = bias.has_value();
  o.bias_value = bias.value_or(0);
  o.decay = line.values.yes("decay", true);
  return line.graph.convolution(line.name, line.x(), o);
}

compute::TensorId matrix_product(const LayerLine& line) {
  const int outputs = line.values.whole("outputs", 1, most_channels);
  const Fans fans{double(line.shape().features()), double(outputs)};
  check_weights(fans, fans.in * fans.out);
  return line.graph.matrix_product(
      line.name, line.x(), outputs, initialiser(line.values, "uniform_fan_in", fans),
      line.values.number_or_none("bias", -large, large, 0), line.values.yes("decay", true));
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
  return line.graph.average_pool(line.x(), pool_options(line.values));
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
    {"convolution", one, one, true, "channels kernel stride padding init bias decay", convolution},
    {"matrix_product", one, one, true, "outputs init bias decay", matrix_product},
    {"batch_norm", one, one, true, "gamma epsilon momentum variance", batch_norm},
    {"sum", two, two, false, "", sum},
    {"concat", two, many, false, "", concat},
    {"shortcut", one, one, false, "stride channels", shortcut},
    {"max_pool", one, one, false, "size stride padding", max_pool},
    {"average_pool", one, one, false, "size stride padding", average_pool},
    {"global_pool", one, one, false, "", global_pool},
    {"lrn", one, one, false, "radius bias alpha beta", lrn},
    {"dropout", one, one, false, "keep", dropout},
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
  ImageInput image;
  image.clip = values.yes("clip", false);
  if (values.yes("standardise", false)) {
    if (values.has("mean") || values.has("deviation"))
      throw Error(Exit::usage, "standardise=yes", "takes each image's own mean and deviation");
    if (image.clip)
      throw Error(Exit::usage, "clip=yes", "needs mean and deviation; leave standardise out");
    image.normalisation = compute::Normalisation::standardise_image;
  } else {
    image.mean = floats(values.numbers("mean", ',', -large, large, {0.5, 0.5, 0.5}));
    image.deviation = floats(values.numbers("deviation", ',', 1e-6, large, {0.25, 0.25, 0.25}));
  }
  return graph.input(height, width, 3, image);
}

}  // namespace ringtrain::model
