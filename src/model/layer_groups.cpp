#include "ringtrain/model/layer_groups.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <variant>

namespace ringtrain::model {
namespace {

template <class Kind>
bool is(const Node& node) {
  return std::holds_alternative<Kind>(node.operation);
}

bool in_block(const Node& node) { return !node.block.empty(); }

// Not one inside a block, as squeeze-and-excitation has it.
bool pools_all(const Node& node, const Graph& graph) {
  return is<AveragePool>(node) && !in_block(node) && graph.tensors[node.output].pixels() == 1;
}

// The first node of the head; the number of nodes where no pool says it.
std::size_t head_begin(const Graph& graph, const std::vector<bool>& auxiliary) {
  for (std::size_t n = graph.nodes.size(); n-- > 0;)
    if (!auxiliary[n] && pools_all(graph.nodes[n], graph)) return n;
  return graph.nodes.size();
}

/// Counts layers, node by node.
class Depth {
 public:
  explicit Depth(const Graph& graph) : blocks_(std::ranges::any_of(graph.nodes, in_block)) {}

  /// The layer of the next node.
  int at(const Node& node) {
    if (begins_layer(node)) {
      if (!linear_) ++layer_;
      linear_ = blocks_;
      block_ = node.block;
    }
    if (is<Pointwise>(node)) linear_ = false;
    return layer_;
  }

 private:
  bool begins_layer(const Node& node) const {
    if (blocks_) return in_block(node) && node.block != block_;
    return is<Convolution>(node) || is<MatrixProduct>(node);
  }

  bool blocks_;
  bool linear_ = false;  // the block so far
  std::string block_;
  int layer_ = 0;
};

}  // namespace

std::set<ParameterId> head_parameters(const Graph& graph) {
  std::set<compute::TensorId> logits;
  std::set<ParameterId> found;
  for (auto node = graph.nodes.rbegin(); node != graph.nodes.rend(); ++node) {
    const bool gives_logits = logits.contains(node->output);
    if (is<Loss>(*node) || (is<Multiply>(*node) && gives_logits)) logits.insert(node->inputs[0]);
    if (is<MatrixProduct>(*node) && gives_logits)
      for (const ParameterId id : parameters_of(node->operation)) found.insert(id);
  }
  return found;
}

std::vector<bool> auxiliary_nodes(const Graph& graph) {
  std::set<compute::TensorId> needed;
  std::vector<bool> auxiliary(graph.nodes.size());
  for (std::size_t n = graph.nodes.size(); n-- > 0;) {
    const Node& node = graph.nodes[n];
    const auto* loss = std::get_if<Loss>(&node.operation);
    auxiliary[n] = loss != nullptr ? loss->auxiliary : !needed.contains(node.output);
    if (!auxiliary[n]) needed.insert(node.inputs.begin(), node.inputs.end());
  }
  return auxiliary;
}

std::vector<int> layer_depths(const Graph& graph) {
  constexpr int head = -1;
  const std::vector<bool> auxiliary = auxiliary_nodes(graph);
  const std::set<ParameterId> of_head = head_parameters(graph);
  const std::size_t body = head_begin(graph, auxiliary);
  std::vector<int> depths(graph.parameters.size(), head);
  Depth depth(graph);
  for (std::size_t n = 0; n < body; ++n) {
    if (auxiliary[n]) continue;
    const int layer = depth.at(graph.nodes[n]);
    for (const ParameterId id : parameters_of(graph.nodes[n].operation))
      if (!of_head.contains(id)) depths[static_cast<std::size_t>(id)] = layer;
  }
  const int deepest = std::ranges::max(depths);
  std::ranges::replace(depths, head, deepest + 1);
  return depths;
}

}  // namespace ringtrain::model
