#include "ringtrain/model/graph.hpp"

#include <fmt/ranges.h>

#include <functional>
#include <numeric>

#include "ringtrain/base/hash.hpp"

namespace ringtrain::model {
namespace {

// Flat ranges of the given lengths, one after the other.
template <class Items, class Length>
std::vector<Range> consecutive(const Items& items, Length length) {
  std::vector<Range> ranges;
  std::size_t first = 0;
  for (const auto& item : items) {
    ranges.push_back({first, length(item)});
    first += length(item);
  }
  return ranges;
}

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

std::size_t Parameter::count() const {
  return std::accumulate(dims.begin(), dims.end(), std::size_t{1}, std::multiplies{});
}

std::vector<compute::ParameterRange> Graph::parameter_ranges() const {
  return consecutive(parameters, [](const Parameter& p) { return p.count(); });
}

std::vector<compute::StatisticsRange> Graph::statistics_ranges() const {
  return consecutive(statistics, [](const Statistic& s) { return 2 * s.channels; });
}

std::size_t Graph::parameter_count() const {
  return parameters.empty() ? 0 : parameter_ranges().back().end();
}

std::size_t Graph::statistic_count() const {
  return statistics.empty() ? 0 : statistics_ranges().back().end();
}

double Graph::multiply_adds() const {
  double sum = 0;
  for (const Node& node : nodes) {
    if (const auto* c = std::get_if<Convolution>(&node.operation))
      sum += double(tensors[node.output].pixels()) * double(parameters[c->w].count());
    if (const auto* m = std::get_if<MatrixProduct>(&node.operation))
      sum += double(parameters[m->w].count());
  }
  return sum;
}

// The first layer needs no gradient of the image.
double Graph::training_flops() const {
  double first = 0;
  for (const Node& node : nodes)
    if (const auto* c = std::get_if<Convolution>(&node.operation)) {
      first = double(tensors[node.output].pixels()) * double(parameters[c->w].count());
      break;
    } else if (const auto* m = std::get_if<MatrixProduct>(&node.operation)) {
      first = double(parameters[m->w].count());
      break;
    }
  return 6 * multiply_adds() - 2 * first;
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
