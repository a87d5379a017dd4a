#include "ringtrain/model/graph.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "ringtrain/base/hash.hpp"

namespace ringtrain::model {
namespace {

// Flat ranges of the given lengths, one after the other.
template <class Items, class Length>
std::vector<Range> consecutive(const Items& items, Length length) {
  std::vector<Range> ranges(items.size());
  std::size_t first = 0;
  for (const bool frozen : {false, true})
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (items[i].frozen != frozen) continue;
      ranges[i] = {first, length(items[i])};
      first += ranges[i].count;
    }
  return ranges;
}

// How long all are; but for the frozen ones.
template <class Items, class Length>
std::size_t total(const Items& items, Length length, bool frozen_too) {
  std::size_t sum = 0;
  for (const auto& item : items)
    if (frozen_too || !item.frozen) sum += length(item);
  return sum;
}

std::size_t length_of(const Parameter& parameter) { return parameter.count(); }
std::size_t length_of(const Statistic& statistic) { return 2 * statistic.channels; }
constexpr auto length = [](const auto& item) { return length_of(item); };

std::string text(const compute::ConvolutionShape& w) {
  const std::string window = fmt::format("{} {} {} {} {} {} {} {}", w.height, w.width, w.stride_y,
                                         w.stride_x, w.top, w.left, w.bottom, w.right);
  return w.is_plain() ? window : fmt::format("{} {} {}", window, w.groups, w.dilation);
}

int id_of(const Operation& operation) {
  return std::visit([](const auto& o) { return o.id; }, operation);
}

// The attributes of an operation that change what it computes.
std::string attributes(const Operation& operation) {
  return std::visit(
      [](const auto& o) -> std::string {
        if constexpr (requires { o.taps; })
          return fmt::format("{} {}", text(o.window), fmt::join(o.taps, " "));
        else if constexpr (requires { o.window; })
          return text(o.window);
        if constexpr (requires { o.border; }) return fmt::format("{}", o.border);
        if constexpr (requires { o.how.radius; })
          return fmt::format("{} {} {} {}", o.how.radius, o.how.bias, o.how.alpha, o.how.beta);
        if constexpr (requires { o.f; })  // files of before other activations have no word for ReLU
          return o.f == compute::Activation::relu ? std::string() : std::string(name_of(o.f));
        if constexpr (requires { o.factor; }) return fmt::format("{}", o.factor);
        if constexpr (std::is_same_v<std::decay_t<decltype(o)>, LayerNorm>)
          return fmt::format("{}", o.epsilon);
        else if constexpr (requires { o.epsilon; })
          return fmt::format("{} {}", o.epsilon, o.unbiased);
        if constexpr (requires { o.stride; }) return fmt::format("{}", o.stride);
        if constexpr (requires { o.how.keep; })
          return fmt::format("{} {}{}", o.how.keep, o.how.layer, o.how.of_sample ? " all" : "");
        if constexpr (requires { o.auxiliary; }) return fmt::format("{} {}", o.weight, o.auxiliary);
        if constexpr (requires { o.normalisation; })
          return fmt::format("{} {} {}", int(o.normalisation), fmt::join(o.mean, " "),
                             fmt::join(o.deviation, " "));
        return {};
      },
      operation);
}

}  // namespace

std::vector<ParameterId> parameters_of(const Operation& operation) {
  std::vector<ParameterId> ids;
  const auto take = [&](const std::optional<ParameterId>& id) {
    if (id) ids.push_back(*id);
  };
  std::visit(
      [&](const auto& o) {
        if constexpr (requires { o.w; }) take(o.w);
        if constexpr (requires { o.b; }) take(o.b);
        if constexpr (requires { o.gamma; }) take(o.gamma);
        if constexpr (requires { o.beta; }) take(o.beta);
      },
      operation);
  return ids;
}

std::size_t Parameter::count() const {
  return std::accumulate(dims.begin(), dims.end(), std::size_t{1}, std::multiplies{});
}

std::vector<compute::ParameterRange> Graph::parameter_ranges() const {
  return consecutive(parameters, length);
}

std::vector<compute::StatisticsRange> Graph::statistics_ranges() const {
  return consecutive(statistics, length);
}

std::size_t Graph::parameter_count() const { return total(parameters, length, true); }
std::size_t Graph::statistic_count() const { return total(statistics, length, true); }
std::size_t Graph::learning_count() const { return total(parameters, length, false); }
std::size_t Graph::moving_count() const { return total(statistics, length, false); }

namespace {

// Of the forward pass of one image.
double multiply_adds_of(const Graph& graph, const Node& node) {
  if (const auto* c = std::get_if<Convolution>(&node.operation))
    return double(graph.tensors[node.output].pixels()) * double(graph.parameters[c->w].count());
  if (const auto* m = std::get_if<MatrixProduct>(&node.operation))
    return double(graph.parameters[m->w].count());
  return 0;
}

}  // namespace

double Graph::multiply_adds() const {
  double sum = 0;
  for (const Node& node : nodes) sum += multiply_adds_of(*this, node);
  return sum;
}

double Graph::training_flops() const {
  std::vector<bool> wanted(tensors.size());  // whether a parameter depends on its gradient
  double sum = 0;
  for (const Node& node : nodes) {
    const bool below = std::ranges::any_of(node.inputs, [&](auto id) { return wanted[id]; });
    const bool learns = std::ranges::any_of(parameters_of(node.operation),
                                            [&](ParameterId id) { return !parameters[id].frozen; });
    sum += 2 * multiply_adds_of(*this, node) * (1 + (learns ? 1 : 0) + (below ? 1 : 0));
    if (node.output != compute::no_tensor) wanted[node.output] = below || learns;
  }
  return sum;
}

std::uint64_t Graph::structure_hash() const {
  std::string all;
  for (const Node& node : nodes) {
    all += fmt::format("{} {} {} ({}) ", node.name, id_of(node.operation),
                       attributes(node.operation), fmt::join(node.inputs, " "));
    if (node.output == compute::no_tensor) continue;
    const compute::Shape& shape = tensors[node.output];
    all += fmt::format("{} {} {}\n", shape.height, shape.width, shape.channels);
  }
  for (const Parameter& p : parameters)
    all += fmt::format("{} {}\n", p.name, fmt::join(p.dims, "x"));
  for (const Statistic& s : statistics) all += fmt::format("{} {}\n", s.name, s.momentum);
  return hash_text(all);
}

}  // namespace ringtrain::model
