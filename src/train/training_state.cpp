#include "train/training_state.hpp"

#include <algorithm>

#include "ringtrain/base/error.hpp"

namespace ringtrain {

TrainingState::TrainingState(const Graph& graph, View parameters, View statistics,
                             const std::vector<Optimizer::Slot>& slots) {
  place_parameters(graph, "weights/", parameters);
  place_statistics(graph, statistics);
  for (const Optimizer::Slot& slot : slots)
    place_parameters(graph, slot.name == "ema" ? "ema/" : "optimizer/" + slot.name + "/",
                     slot.values);
}

void TrainingState::place_parameters(const Graph& graph, const std::string& folder, View buffer) {
  const auto ranges = graph.parameter_ranges();
  for (std::size_t p = 0; p < ranges.size(); ++p) {
    const Parameter& parameter = graph.parameters[p];
    layout_.tensors.push_back(
        {{folder + parameter.name, {parameter.dims.begin(), parameter.dims.end()}},
         buffers_.size(),
         ranges[p].first});
  }
  buffers_.push_back(buffer);
  layout_.buffers.push_back(buffer.size());
}

void TrainingState::place_statistics(const Graph& graph, View buffer) {
  const auto ranges = graph.statistics_ranges();
  for (std::size_t s = 0; s < ranges.size(); ++s) {
    const auto& [name, channels, momentum] = graph.statistics[s];
    const std::string path = "statistics/" + name;
    layout_.tensors.push_back(
        {{path + ".running_mean", {channels}}, buffers_.size(), ranges[s].first});
    layout_.tensors.push_back(
        {{path + ".running_var", {channels}}, buffers_.size(), ranges[s].first + channels});
  }
  buffers_.push_back(buffer);
  layout_.buffers.push_back(buffer.size());
}

void TrainingState::copy_to(std::span<const std::span<float>> targets) const {
  expects(targets.size() == buffers_.size(), "TrainingState::copy_to: one target a buffer");
  for (std::size_t i = 0; i < buffers_.size(); ++i)
    std::ranges::copy(buffers_[i].host(), targets[i].begin());
}

void TrainingState::copy_from(std::span<const std::vector<float>> sources) const {
  expects(sources.size() == buffers_.size(), "TrainingState::copy_from: one source a buffer");
  for (std::size_t i = 0; i < buffers_.size(); ++i)
    std::ranges::copy(sources[i], buffers_[i].data());
}

std::vector<std::span<float>> TrainingState::tensors() const {
  std::vector<std::span<float>> result;
  for (const TensorPlace& tensor : layout_.tensors)
    result.push_back(
        buffers_[tensor.buffer].host().subspan(tensor.offset, element_count(tensor.info)));
  return result;
}

}  // namespace ringtrain
