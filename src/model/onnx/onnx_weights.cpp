#include "model/onnx/onnx_weights.hpp"

#include <cmath>
#include <variant>

namespace ringtrain::model {
namespace {

// Has weights, a row for each channel of its result.
bool is_layer(const Node& node) {
  return std::holds_alternative<Convolution>(node.operation) ||
         std::holds_alternative<MatrixProduct>(node.operation);
}

}  // namespace

OnnxWeights::OnnxWeights(const Graph& graph, const GraphValues& values,
                         const std::vector<bool>& needed, bool fold)
    : graph_(graph),
      values_(values),
      parameters_(graph.parameter_ranges()),
      statistics_(graph.statistics_ranges()),
      rows_(row_layouts(graph)) {
  if (fold) find_folded(needed);
}

void OnnxWeights::find_folded(const std::vector<bool>& needed) {
  std::map<compute::TensorId, int> readers;
  std::map<compute::TensorId, bool> of_layer;
  for (std::size_t n = 0; n < graph_.nodes.size(); ++n) {
    const Node& node = graph_.nodes[n];
    if (!needed[n]) continue;
    for (const compute::TensorId id : node.inputs) ++readers[id];
    if (node.output != compute::no_tensor) of_layer[node.output] = is_layer(node);
  }
  for (std::size_t n = 0; n < graph_.nodes.size(); ++n) {
    const auto* norm = std::get_if<BatchNorm>(&graph_.nodes[n].operation);
    if (norm == nullptr || !needed[n]) continue;
    const compute::TensorId x = graph_.nodes[n].inputs[0];
    if (of_layer[x] && readers[x] == 1) folded_[x] = norm;
  }
}

std::span<const float> OnnxWeights::parameter(ParameterId id) const {
  return values_.parameters.subspan(parameters_[id].first, parameters_[id].count);
}

std::span<const float> OnnxWeights::mean(const BatchNorm& norm) const {
  const Range& both = statistics_[norm.statistics];
  return values_.statistics.subspan(both.first, both.count / 2);
}

std::span<const float> OnnxWeights::variance(const BatchNorm& norm) const {
  const Range& both = statistics_[norm.statistics];
  return values_.statistics.subspan(both.first + both.count / 2, both.count / 2);
}

std::vector<float> OnnxWeights::gamma(const BatchNorm& norm) const {
  if (!norm.gamma) return std::vector<float>(mean(norm).size(), 1.f);
  const auto values = parameter(*norm.gamma);
  return {values.begin(), values.end()};
}

OnnxLayer OnnxWeights::layer(const Node& node, ParameterId w, std::optional<ParameterId> b) const {
  const auto ours = parameter(w);
  OnnxLayer layer{std::vector<float>(ours.size()), {}};
  const auto row = rows_.find(graph_.parameters[w].name);
  to_torch_layout(ours, row == rows_.end() ? RowLayout{} : row->second, layer.w);
  if (b) layer.b.assign(parameter(*b).begin(), parameter(*b).end());
  const auto folded = folded_.find(node.output);
  if (folded == folded_.end()) return layer;

  const BatchNorm& norm = *folded->second;
  const std::vector<float> gammas = gamma(norm);
  const std::size_t row_size = layer.w.size() / gammas.size();
  layer.b.resize(gammas.size());
  for (std::size_t c = 0; c < gammas.size(); ++c) {
    const double scale = gammas[c] / std::sqrt(double(variance(norm)[c]) + norm.epsilon);
    layer.b[c] =
        static_cast<float>((double(layer.b[c]) - mean(norm)[c]) * scale + parameter(norm.beta)[c]);
    for (float& value : std::span(layer.w).subspan(c * row_size, row_size))
      value = static_cast<float>(value * scale);
  }
  return layer;
}

}  // namespace ringtrain::model
