#include <fmt/core.h>
#include <fnmatch.h>

#include <algorithm>
#include <variant>

#include "ringtrain/base/error.hpp"
#include "ringtrain/base/text.hpp"
#include "ringtrain/model/graph.hpp"

namespace ringtrain::model {
namespace {

Error matches_nothing(const Graph& graph, const std::string& pattern) {
  std::vector<std::string> known;
  for (const Parameter& parameter : graph.parameters) {
    const std::string module = parameter.name.substr(0, parameter.name.rfind('.'));
    if (known.empty() || known.back() != module) known.push_back(module);
  }
  std::string text;
  for (std::size_t i = 0; i < known.size(); i += std::max<std::size_t>(1, known.size() / 6))
    text += (text.empty() ? "" : ", ") + known[i];
  return {Exit::usage, "--freeze " + printable(pattern),
          "matches no parameter; the network has such as " + text};
}

void mark(Graph& graph, const std::string& pattern) {
  const bool frees = pattern.starts_with('!');
  const std::string of = pattern.substr(frees ? 1 : 0);
  bool any = false;
  for (Parameter& parameter : graph.parameters) {
    if (!matches(of, parameter.name)) continue;
    parameter.frozen = !frees;
    any = true;
  }
  if (!any) throw matches_nothing(graph, pattern);
}

// Whose gradients are computed by one step.
void hold(Graph& graph, const std::vector<ParameterId>& layer) {
  for (const ParameterId id : layer) {
    Parameter& parameter = graph.parameters[id];
    parameter.held = parameter.frozen;
    parameter.frozen = false;
  }
}

void settle_layers(Graph& graph) {
  std::vector<bool> learns(graph.tensors.size());  // something learns at or below it
  for (const Node& node : graph.nodes) {
    const std::vector<ParameterId> layer = parameters_of(node.operation);
    const auto is_frozen = [&](ParameterId id) { return graph.parameters[id].frozen; };
    bool frozen = std::ranges::all_of(layer, is_frozen);
    const bool below = std::ranges::any_of(node.inputs, [&](auto id) { return learns[id]; });
    const bool one_step = below && std::holds_alternative<LayerNorm>(node.operation);
    if (std::ranges::any_of(layer, is_frozen) && (!frozen || one_step)) {
      hold(graph, layer);
      frozen = false;
    }
    if (const auto* norm = std::get_if<BatchNorm>(&node.operation))
      graph.statistics[norm->statistics].frozen = frozen;
    if (node.output != compute::no_tensor)
      learns[node.output] = below || (!layer.empty() && !frozen);
  }
}

}  // namespace

bool matches(const std::string& pattern, const std::string& parameter) {
  return fnmatch(pattern.c_str(), parameter.c_str(), 0) == 0 ||
         fnmatch((pattern + ".*").c_str(), parameter.c_str(), 0) == 0;
}

void freeze(Graph& graph, const std::string& patterns) {
  for (const std::string& pattern : split(patterns, ',')) mark(graph, pattern);
  if (std::ranges::none_of(graph.parameters, &Parameter::frozen))
    throw Error(Exit::usage, "--freeze " + printable(patterns),
                "freezes nothing: ! frees what a pattern before it froze, as in '*,!fc'");
  settle_layers(graph);
  const auto learns = [](const Parameter& p) { return !p.frozen && !p.held; };
  if (std::ranges::none_of(graph.parameters, learns))
    throw Error(
        Exit::usage, "--freeze " + printable(patterns),
        "leaves nothing to learn; free a part, such as the last layer: --freeze '*,!" +
            graph.parameters.back().name.substr(0, graph.parameters.back().name.rfind('.')) + "'");
}

}  // namespace ringtrain::model
