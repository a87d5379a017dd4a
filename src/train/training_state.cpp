#include "train/training_state.hpp"

#include <algorithm>

#include "ringtrain/base/error.hpp"
#include "ringtrain/base/hash.hpp"

namespace ringtrain {

TrainingState::TrainingState(const Graph& graph, Memory& memory, View parameters, View statistics,
                             const std::vector<Optimizer::Slot>& slots, View averaged_statistics)
    : memory_(memory) {
  place_parameters(graph, "weights/", parameters);
  place_statistics(graph, "statistics/", statistics);
  for (const Optimizer::Slot& slot : slots)
    place_parameters(graph, slot.name == "ema" ? "ema/" : "optimizer/" + slot.name + "/",
                     slot.values);
  if (averaged_statistics.size() > 0) place_statistics(graph, "ema/", averaged_statistics);
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

void TrainingState::place_statistics(const Graph& graph, const std::string& folder, View buffer) {
  const auto ranges = graph.statistics_ranges();
  for (std::size_t s = 0; s < ranges.size(); ++s) {
    const auto& [name, channels, momentum] = graph.statistics[s];
    const std::string path = folder + name;
    layout_.tensors.push_back(
        {{path + ".running_mean", {channels}}, buffers_.size(), ranges[s].first});
    layout_.tensors.push_back(
        {{path + ".running_var", {channels}}, buffers_.size(), ranges[s].first + channels});
  }
  buffers_.push_back(buffer);
  layout_.buffers.push_back(buffer.size());
}

void TrainingState::add(const std::string& name, View values) {
  layout_.tensors.push_back({{name, {values.size()}}, buffers_.size(), 0});
  buffers_.push_back(values);
  layout_.buffers.push_back(values.size());
}

void TrainingState::copy_from(std::span<const std::vector<float>> sources) const {
  expects(sources.size() == buffers_.size(), "TrainingState::copy_from: one source a buffer");
  for (std::size_t i = 0; i < buffers_.size(); ++i) memory_.write(sources[i], buffers_[i]);
}

std::vector<std::vector<float>> TrainingState::copy() const {
  std::vector<std::vector<float>> values;
  for (const View& buffer : buffers_) memory_.read(buffer, values.emplace_back(buffer.size()));
  return values;
}

std::vector<std::uint64_t> TrainingState::hashes() const {
  constexpr std::size_t piece_size = 1 << 16;  // stays in the cache between copy and hash
  std::vector<float> piece(piece_size);
  std::vector<std::uint64_t> hashes;
  for (const TensorPlace& place : layout_.tensors)
    hashes.push_back(
        hash_of(buffers_[place.buffer].slice(place.offset, element_count(place.info)), piece));
  return hashes;
}

// By way of `piece`, as the state may lie in memory that the host cannot read.
std::uint64_t TrainingState::hash_of(View values, std::span<float> piece) const {
  Hasher hash;
  for (std::size_t first = 0; first < values.size(); first += piece.size()) {
    const auto part = piece.first(std::min(piece.size(), values.size() - first));
    memory_.read(values.slice(first, part.size()), part);
    hash.update(std::as_bytes(part));
  }
  return hash.value();
}

}  // namespace ringtrain
