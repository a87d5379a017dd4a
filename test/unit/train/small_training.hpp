#pragma once
#include <algorithm>
#include <numeric>

#include "ringtrain/allreduce/make_communicator.hpp"
#include "ringtrain/allreduce/mpi/session.hpp"
#include "ringtrain/model/graph.hpp"
#include "train/state/training_state.hpp"
#include "unit/io/checkpoint/checkpoint_fixture.hpp"

namespace ringtrain::train {

inline model::Graph network(int channels, int classes) {
  model::GraphBuilder g;
  compute::TensorId x = g.input(4, 4, 3, {compute::Normalisation::standardise_image});
  x = g.convolution("conv", x, {.channels = channels});
  x = g.global_pool(g.batch_norm("bn", x, {}));
  g.loss(g.matrix_product("fc", x, classes, {}, 0.0, true));
  return std::move(g).finish();
}

/// What a moving average is kept of; early builds kept none of statistics.
enum class Averaged { weights, statistics_too };

/// The state of a training of `graph` on one rank; buffer b holds 1000 * b + 1, 1000 * b + 2, ...
struct SmallTraining {
  SmallTraining(model::Graph network, double ema, Averaged averaged = Averaged::weights)
      : graph(std::move(network)),
        communicator(allreduce::make_communicator("solo", session)),
        parameters(memory.allocate(graph.parameter_count())),
        statistics(memory.allocate(graph.statistic_count())),
        gradients(memory.allocate(graph.parameter_count())),
        averaged_statistics(
            memory.allocate(averaged == Averaged::statistics_too ? graph.statistic_count() : 0)),
        optimizer({.ema = ema}, parameters, gradients, memory),
        state(graph, memory, parameters, statistics, optimizer.slots(), averaged_statistics) {
    auto values = state.copy();
    for (std::size_t b = 0; b < values.size(); ++b)
      std::iota(values[b].begin(), values[b].end(), 1000.0f * static_cast<float>(b) + 1);
    state.copy_from(values);
  }
  void set(float value) {
    auto values = state.copy();
    for (auto& buffer : values) std::ranges::fill(buffer, value);
    state.copy_from(values);
  }
  std::filesystem::path save(const std::filesystem::path& directory) const {
    io::State file(7);
    file.layout = state.layout();
    file.buffers = state.copy();
    return io::save_one(directory, file);
  }
  // Buffers: parameters, statistics, momentum, moving average.
  std::vector<float> part(std::size_t buffer, std::size_t first, std::size_t count) const {
    const auto values = state.copy()[buffer];
    return {values.begin() + first, values.begin() + first + count};
  }

  allreduce::MpiSession session;
  HostMemory memory;
  model::Graph graph;
  std::unique_ptr<allreduce::Communicator> communicator;
  Buffer parameters, statistics, gradients, averaged_statistics;
  optim::Optimizer optimizer;
  TrainingState state;
};

}  // namespace ringtrain::train
