#include "train/init_from.hpp"

#include <catch2/catch.hpp>
#include <numeric>

#include "io/checkpoint_fixture.hpp"
#include "ringtrain/allreduce/make_communicator.hpp"

using namespace ringtrain;
using Catch::Matchers::Contains;

namespace {

Graph network(int channels, int classes) {
  GraphBuilder g;
  TensorId x = g.input(4, 4, 3, {Normalisation::standardise_image});
  x = g.convolution("conv", x, {.channels = channels});
  x = g.global_pool(g.batch_norm("bn", x, {}));
  g.loss(g.matrix_product("fc", x, classes, {}, 0.0, true));
  return std::move(g).finish();
}

Graph without_norm() {
  GraphBuilder g;
  TensorId x = g.input(4, 4, 3, {Normalisation::standardise_image});
  x = g.global_pool(g.convolution("conv", x, {.channels = 2}));
  g.loss(g.matrix_product("fc", x, 3, {}, 0.0, true));
  return std::move(g).finish();
}

// The state of a training of `graph` on one rank; buffer b holds 1000 * b + 1, 1000 * b + 2, ...
struct Training {
  Training(Graph network, double ema)
      : graph(std::move(network)),
        communicator(make_communicator("solo", session)),
        parameters(memory.allocate(graph.parameter_count())),
        statistics(memory.allocate(graph.statistic_count())),
        gradients(memory.allocate(graph.parameter_count())),
        optimizer({.ema = ema}, parameters, gradients, memory),
        state(graph, memory, parameters, statistics, optimizer.slots()) {
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
    State file(7);
    file.layout = state.layout();
    file.buffers = state.copy();
    return save_one(directory, file);
  }
  std::string start(const std::filesystem::path& file, Heads heads = Heads::may_differ) {
    return init_from(file, heads, graph, state, *communicator, session);
  }
  std::string refusal(const std::filesystem::path& file, Heads heads = Heads::may_differ) {
    const auto before = state.copy();
    try {
      start(file, heads);
    } catch (const Error& failure) {
      CHECK(failure.code() == Exit::incompatible_checkpoint);
      CHECK(state.copy() == before);
      return failure.what();
    }
    return "accepted";
  }
  // Buffers: parameters, statistics, momentum, moving average.
  std::vector<float> part(std::size_t buffer, std::size_t first, std::size_t count) const {
    const auto values = state.copy()[buffer];
    return {values.begin() + first, values.begin() + first + count};
  }

  MpiSession session;
  HostMemory memory;
  Graph graph;
  std::unique_ptr<Communicator> communicator;
  Buffer parameters, statistics, gradients;
  Optimizer optimizer;
  TrainingState state;
};

}  // namespace

TEST_CASE("init_from: weights and statistics are the file's, the optimizer starts anew") {
  const TemporaryDirectory directory;
  const Training old(network(2, 3), 0);
  Training fresh(network(2, 3), 0.9);
  fresh.set(-5);

  const std::string said = fresh.start(old.save(directory));

  CHECK_THAT(said, Contains("weights and running statistics from step-0000000007.h5"));
  CHECK_THAT(said, !Contains("drawn anew"));
  const auto theirs = old.state.copy(), ours = fresh.state.copy();
  CHECK(ours[0] == theirs[0]);
  CHECK(ours[1] == theirs[1]);
  CHECK(ours[2] == std::vector<float>(ours[2].size(), -5));  // momentum
  CHECK(ours[3] == theirs[0]);                               // the average starts from the weights
}

TEST_CASE("init_from: the weights' moving average is taken where the file has one") {
  const TemporaryDirectory directory;
  const Training old(network(2, 3), 0.9);
  Training fresh(network(2, 3), 0);

  const std::string said = fresh.start(old.save(directory));

  CHECK_THAT(said, Contains("moving averages of weights"));
  CHECK(fresh.state.copy()[0] == old.state.copy()[3]);
}

TEST_CASE("init_from: a head for other classes stays as drawn, and is named") {
  const TemporaryDirectory directory;
  const Training old(network(2, 3), 0);
  Training fresh(network(2, 4), 0.9);
  fresh.set(-5);
  const auto file = old.save(directory);
  const std::size_t body = fresh.graph.parameter_ranges()[3].first;

  const std::string said = fresh.start(file);

  REQUIRE(fresh.graph.parameters[3].name == "fc.weight");
  CHECK_THAT(said, Contains("drawn anew") && Contains("fc.weight [4,2], fc.bias [4]"));
  for (const std::size_t buffer : {0, 3}) {
    CHECK(fresh.part(buffer, 0, body) == old.part(0, 0, body));
    CHECK(fresh.part(buffer, body, 12) == std::vector<float>(12, -5));
  }
  CHECK_THAT(fresh.refusal(file, Heads::must_fit), Contains("has weights/fc.weight [3,2]"));
}

TEST_CASE("init_from: another network is refused with what differs, and nothing is changed") {
  const TemporaryDirectory directory;
  const Training narrow(network(2, 3), 0);
  Training wide(network(5, 3), 0), plain(without_norm(), 0);
  const auto file = narrow.save(directory);

  CHECK_THAT(wide.refusal(file),
             Contains("has weights/conv.weight [2,1,1,3], needed is [5,1,1,3]") &&
                 Contains("has statistics/bn.running_var [2], needed is [5]"));
  CHECK_THAT(plain.refusal(file), Contains("has weights/bn.weight [2], which this model has not"));
}

TEST_CASE("init_from: a damaged file is refused") {
  const TemporaryDirectory directory;
  Training training(network(2, 3), 0);
  const auto file = training.save(directory);
  std::string bytes = file_bytes(file);
  bytes.back() ^= 1;
  write_bytes(file, bytes);

  CHECK_THROWS_WITH(training.start(file), Contains("fails its hash"));
}
