#include "train/state/training_state.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "ringtrain/base/error.hpp"
#include "ringtrain/base/hash.hpp"

namespace ringtrain::train {

std::size_t Shards::size_of(int rank) const {
  std::size_t size = 0;
  for (const Range& range : ranges[static_cast<std::size_t>(rank)]) size += range.count;
  return size;
}

Shards make_shards(const allreduce::Communicator& communicator,
                   std::span<const std::uint64_t> bounds, std::size_t first_gradient) {
  std::vector<std::size_t> counts;
  for (std::size_t b = 0; b + 1 < bounds.size(); ++b) counts.push_back(bounds[b + 1] - bounds[b]);
  Shards shards{communicator.rank(), {}};
  for (int rank = 0; rank < communicator.size(); ++rank) {
    const std::vector<Range> parts = communicator.own_parts(counts, rank);
    std::vector<Range>& ranges = shards.ranges.emplace_back();
    for (std::size_t b = 0; b < parts.size(); ++b) {
      const std::size_t first = std::max(bounds[b] + parts[b].first, first_gradient),
                        end = bounds[b] + parts[b].end();
      if (end > first) ranges.push_back({first - first_gradient, end - first});
    }
  }
  return shards;
}

void unpack(std::span<const float> packed, std::span<const Range> ranges, std::span<float> whole) {
  for (const Range& range : ranges) {
    std::ranges::copy(packed.first(range.count), whole.subspan(range.first).begin());
    packed = packed.subspan(range.count);
  }
}

void pack(std::span<const float> piece, std::size_t first, std::span<const Range> ranges,
          std::span<float> packed) {
  for (const Range& range : ranges) {
    const std::size_t begin = std::max(range.first, first),
                      end = std::min(range.end(), first + piece.size());
    if (end > begin)
      std::ranges::copy(piece.subspan(begin - first, end - begin),
                        packed.subspan(begin - range.first).begin());
    packed = packed.subspan(range.count);
  }
}

namespace {

constexpr std::size_t piece_size = 1 << 16;  // stays in the cache between copy and hash

}  // namespace

TrainingState::TrainingState(const model::Graph& graph, Memory& memory, View parameters,
                             View statistics, const std::vector<optim::Optimizer::Slot>& slots,
                             View averaged_statistics, const Shards* shards)
    : memory_(memory), shards_(shards) {
  place_parameters(graph, "weights/", parameters);
  place_statistics(graph, "statistics/", statistics);
  for (const optim::Optimizer::Slot& slot : slots)
    if (slot.name == "ema")
      place_parameters(graph, "ema/", slot.values);
    else
      place_slot(graph, "optimizer/" + slot.name + "/", slot.values, shards != nullptr);
  if (averaged_statistics.size() > 0) place_statistics(graph, "ema/", averaged_statistics);
}

void TrainingState::place_parameters(const model::Graph& graph, const std::string& folder,
                                     View buffer) {
  add_parameters(graph, folder, true);
  push_buffer(buffer, buffer.size());
}

void TrainingState::place_slot(const model::Graph& graph, const std::string& folder, View buffer,
                               bool sharded) {
  add_parameters(graph, folder, false);
  push_buffer(buffer, sharded ? graph.learning_count() : buffer.size(), sharded);
}

// Of the buffer that comes next.
void TrainingState::add_parameters(const model::Graph& graph, const std::string& folder,
                                   bool frozen_too) {
  const auto ranges = graph.parameter_ranges();
  for (std::size_t p = 0; p < ranges.size(); ++p) {
    const model::Parameter& parameter = graph.parameters[p];
    if (parameter.frozen && !frozen_too) continue;
    layout_.tensors.push_back(
        {{folder + parameter.name, {parameter.dims.begin(), parameter.dims.end()}},
         buffers_.size(),
         ranges[p].first});
  }
}

void TrainingState::place_statistics(const model::Graph& graph, const std::string& folder,
                                     View buffer) {
  const auto ranges = graph.statistics_ranges();
  for (std::size_t s = 0; s < ranges.size(); ++s) {
    const auto& [name, channels, momentum, frozen] = graph.statistics[s];
    const std::string path = folder + name;
    layout_.tensors.push_back(
        {{path + ".running_mean", {channels}}, buffers_.size(), ranges[s].first});
    layout_.tensors.push_back(
        {{path + ".running_var", {channels}}, buffers_.size(), ranges[s].first + channels});
  }
  push_buffer(buffer, buffer.size());
}

void TrainingState::add(const std::string& name, View values) {
  layout_.tensors.push_back({{name, {values.size()}}, buffers_.size(), 0});
  push_buffer(values, values.size());
}

void TrainingState::add_kept(View kept, View complete, const Shards& shards,
                             std::function<void()> refresh) {
  expects(shards_ == nullptr, "TrainingState: one kind of shards");
  std::size_t size = 0;
  for (std::size_t rank = 0; rank < shards.ranges.size(); ++rank) {
    const std::size_t count = shards.size_of(static_cast<int>(rank));
    if (count > 0)
      layout_.tensors.push_back(
          {{fmt::format("compression/kept_by_rank_{}", rank), {count}}, buffers_.size(), size});
    size += count;
  }
  push_buffer(kept, size, true);
  shards_ = &shards;
  complete_ = buffers_.size();
  add("compression/complete", complete);
  refresh_ = std::move(refresh);
}

void TrainingState::push_buffer(View buffer, std::size_t size, bool sharded) {
  buffers_.push_back(buffer);
  layout_.buffers.push_back(size);
  sharded_.push_back(sharded);
}

void TrainingState::copy_from(std::span<const std::vector<float>> sources) const {
  expects(sources.size() == buffers_.size(), "TrainingState::copy_from: one source a buffer");
  for (std::size_t i = 0; i < buffers_.size(); ++i) memory_of(i).write(sources[i], buffers_[i]);
}

std::vector<std::vector<float>> TrainingState::copy() const {
  refresh();
  std::vector<std::vector<float>> values;
  for (std::size_t i = 0; i < buffers_.size(); ++i)
    memory_of(i).read(buffers_[i], values.emplace_back(buffers_[i].size()));
  return values;
}

void TrainingState::share(std::vector<std::vector<float>> values, bool kept,
                          allreduce::Communicator& communicator,
                          const allreduce::MpiSession& session) const {
  values.resize(buffers_.size());
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    if (!kept && is_kept(i)) continue;
    if (has_shard(i)) {
      share_shards(memory_of(i), buffers_[i], values[i], layout_.buffers[i], session);
      continue;
    }
    if (communicator.rank() == 0) memory_of(i).write(values[i], buffers_[i]);
    if (is_kept(i))
      session.broadcast(std::as_writable_bytes(buffers_[i].host()), 0);
    else
      communicator.broadcast(buffers_[i], 0);
  }
}

// In pieces: no rank but the first has room for all of it.
void TrainingState::share_shards(const Memory& memory, View own, std::span<const float> values,
                                 std::size_t size, const allreduce::MpiSession& session) const {
  constexpr std::size_t most = std::size_t{1} << 20;
  std::vector<float> piece, packed(own.size());
  for (std::size_t first = 0; first < size; first += most) {
    piece.resize(std::min(most, size - first));
    if (session.rank() == 0) std::ranges::copy(values.subspan(first, piece.size()), piece.begin());
    session.broadcast(std::as_writable_bytes(std::span(piece)), 0);
    pack(piece, first, shards_->own(), packed);
  }
  memory.write(packed, own);
}

// All ranks' shards of it, on all ranks.
std::vector<float> TrainingState::whole(std::size_t buffer,
                                        const allreduce::MpiSession& session) const {
  std::vector<float> values(layout_.buffers[buffer]);
  for (int rank = 0; rank < session.size(); ++rank) {
    std::vector<float> shard(shards_->size_of(rank));
    if (rank == session.rank()) memory_of(buffer).read(buffers_[buffer], shard);
    session.broadcast(std::as_writable_bytes(std::span(shard)), rank);
    unpack(shard, shards_->ranges[static_cast<std::size_t>(rank)], values);
  }
  return values;
}

std::vector<std::uint64_t> TrainingState::hashes(const allreduce::MpiSession& session) const {
  refresh();
  std::vector<float> piece(piece_size);
  std::vector<std::uint64_t> all = hashes();
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    if (!has_shard(i)) continue;
    std::vector<float> values = whole(i, session);
    for (std::size_t t = 0; t < all.size(); ++t)
      if (const io::TensorPlace& place = layout_.tensors[t]; place.buffer == i)
        all[t] = hash_of(
            View(values.data(), values.size()).slice(place.offset, io::element_count(place.info)),
            host_memory_, piece);
  }
  return all;
}

std::vector<std::uint64_t> TrainingState::hashes() const {
  std::vector<float> piece(piece_size);
  std::vector<std::uint64_t> hashes;
  for (const io::TensorPlace& place : layout_.tensors)
    hashes.push_back(
        has_shard(place.buffer)
            ? 0
            : hash_of(buffers_[place.buffer].slice(place.offset, io::element_count(place.info)),
                      memory_of(place.buffer), piece));
  return hashes;
}

// By way of `piece`, as the state may lie in memory that the host cannot read.
std::uint64_t TrainingState::hash_of(View values, const Memory& memory, std::span<float> piece) {
  Hasher hash;
  for (std::size_t first = 0; first < values.size(); first += piece.size()) {
    const auto part = piece.first(std::min(piece.size(), values.size() - first));
    memory.read(values.slice(first, part.size()), part);
    hash.update(std::as_bytes(part));
  }
  return hash.value();
}

}  // namespace ringtrain::train
