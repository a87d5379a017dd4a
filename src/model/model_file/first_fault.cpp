#include "model/model_file/first_fault.hpp"

#include <fmt/core.h>

#include <variant>

#include "model/model_file/operations.hpp"

namespace ringtrain {
namespace {

constexpr int most_dropouts = 256;  // their random numbers are keyed by 8 bits of layer

std::optional<Fault> unused_result(const Graph& graph) {
  std::vector<bool> read(graph.tensors.size());
  for (const Node& node : graph.nodes)
    for (const TensorId id : node.inputs) read[id] = true;
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    if (node.output != no_tensor && !read[node.output])
      return Fault{n, node.name, "no line reads its result; a network ends with `loss`"};
  }
  return std::nullopt;
}

std::optional<Fault> wrong_counts(const Graph& graph) {
  int losses = 0, dropouts = 0;
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    const Operation& operation = graph.nodes[n].operation;
    const auto* loss = std::get_if<Loss>(&operation);
    if (loss != nullptr && !loss->auxiliary && ++losses > 1)
      return Fault{n, "loss", "the second one; say auxiliary=yes of all but one"};
    if (std::holds_alternative<DropoutLayer>(operation) && ++dropouts > most_dropouts)
      return Fault{n, "dropout", fmt::format("a network has at most {}", most_dropouts)};
  }
  if (losses == 1) return std::nullopt;
  return Fault{graph.nodes.size() - 1, "no loss", "a network ends with `loss`"};
}

std::optional<Fault> wrong_size(const Graph& graph) {
  const Fault last{graph.nodes.size() - 1, "", ""};
  const auto count = double(graph.parameter_count());
  if (count == 0) return Fault{last.node, "no parameters", "there is nothing to train"};
  if (count <= most_values) return std::nullopt;
  return Fault{last.node, fmt::format("{:.0f} parameters", count),
               fmt::format("a network has at most {:.0f}", most_values)};
}

}  // namespace

std::optional<Fault> first_fault(const Graph& graph) {
  if (auto fault = unused_result(graph)) return fault;
  if (auto fault = wrong_counts(graph)) return fault;
  return wrong_size(graph);
}

}  // namespace ringtrain
