#include "ringtrain/model/torch_state.hpp"

#include <algorithm>
#include <set>
#include <variant>

namespace ringtrain::model {
namespace {

using Dims = std::vector<std::size_t>;

// torch's shape of a parameter of ours.
Dims torch_dims(const Dims& ours, bool layer_scale) {
  if (layer_scale) return {ours[0], 1, 1};
  return ours.size() == 4 ? Dims{ours[0], ours[3], ours[1], ours[2]} : ours;
}

std::set<ParameterId> layer_scales(const Graph& graph) {
  std::set<ParameterId> found;
  for (const Node& node : graph.nodes)
    if (const auto* scale = std::get_if<LayerScale>(&node.operation)) found.insert(scale->w);
  return found;
}

std::set<StatisticId> norms_without_gamma(const Graph& graph) {
  std::set<StatisticId> found;
  for (const Node& node : graph.nodes)
    if (const auto* norm = std::get_if<BatchNorm>(&node.operation); norm && !norm->gamma)
      found.insert(norm->statistics);
  return found;
}

void add_parameters(const Graph& graph, std::vector<TorchTensor>& tensors) {
  const auto ranges = graph.parameter_ranges();
  const auto rows = row_layouts(graph);
  const auto scales = layer_scales(graph);
  for (std::size_t p = 0; p < ranges.size(); ++p) {
    const Parameter& parameter = graph.parameters[p];
    const bool scale = scales.contains(static_cast<ParameterId>(p));
    const auto row = rows.find(parameter.name);
    tensors.push_back({parameter.name, torch_dims(parameter.dims, scale),
                       TorchTensor::Values::parameters, ranges[p],
                       row == rows.end() ? RowLayout{} : row->second});
  }
}

void add_statistics(const Graph& graph, std::vector<TorchTensor>& tensors) {
  const auto ranges = graph.statistics_ranges();
  const auto without = norms_without_gamma(graph);
  for (std::size_t s = 0; s < ranges.size(); ++s) {
    const auto& [name, channels, momentum, frozen] = graph.statistics[s];
    const std::size_t mean = ranges[s].first;
    if (without.contains(static_cast<StatisticId>(s)))
      tensors.push_back({name + ".weight", {channels}, TorchTensor::Values::ones});
    tensors.push_back(
        {name + ".running_mean", {channels}, TorchTensor::Values::statistics, {mean, channels}});
    tensors.push_back({name + ".running_var",
                       {channels},
                       TorchTensor::Values::statistics,
                       {mean + channels, channels}});
    tensors.push_back({name + ".num_batches_tracked", {}, TorchTensor::Values::counter});
  }
}

}  // namespace

std::map<std::string, RowLayout> row_layouts(const Graph& graph) {
  std::map<std::string, RowLayout> layouts;
  for (const Parameter& parameter : graph.parameters)
    if (const auto& dims = parameter.dims; dims.size() == 4)
      layouts[parameter.name] = {dims[3], dims[1] * dims[2]};
  for (const Node& node : graph.nodes)
    if (const auto* layer = std::get_if<MatrixProduct>(&node.operation)) {
      const compute::Shape& x = graph.tensors[node.inputs[0]];
      layouts[graph.parameters[layer->w].name] = {std::size_t(x.channels),
                                                  std::size_t(x.height) * x.width};
    }
  return layouts;
}

void from_torch_layout(std::span<const float> theirs, RowLayout row, std::span<float> ours) {
  // the same turn, with the extents exchanged
  to_torch_layout(theirs, {row.pixels, row.channels}, ours);
}

void to_torch_layout(std::span<const float> ours, RowLayout row, std::span<float> theirs) {
  const std::size_t size = row.channels * row.pixels;
  for (std::size_t first = 0; first < ours.size(); first += size)
    for (std::size_t c = 0; c < row.channels; ++c)
      for (std::size_t p = 0; p < row.pixels; ++p)
        theirs[first + c * row.pixels + p] = ours[first + p * row.channels + c];
}

std::vector<TorchTensor> torch_state(const Graph& graph) {
  std::vector<TorchTensor> tensors;
  add_parameters(graph, tensors);
  add_statistics(graph, tensors);
  return tensors;
}

}  // namespace ringtrain::model
