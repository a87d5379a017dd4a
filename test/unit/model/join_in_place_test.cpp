// Concatenations without copies: the same results, whatever a backend refuses.
#include <algorithm>
#include <cmath>

#include "ringtrain/base/hash.hpp"
#include "ringtrain/compute/backend.hpp"
#include "ringtrain/compute/memory_plan.hpp"
#include "ringtrain/model/passes.hpp"
#include "support/catch.hpp"
#include "support/random_batch.hpp"
#include "support/some_parameters.hpp"
#include "support/training_outcome.hpp"
#include "unit/model/schedules.hpp"

using namespace ringtrain;
using namespace ringtrain::model;

namespace {

// All but slices.
bool whole_tensors(const compute::Schedule& schedule, const compute::Step& step) {
  return !compute::touches_slice(schedule, step);
}

// Refuses a step that touches a slice where its name begins with `name`.
Supports no_slice_in(const std::string& name) {
  return [name](const compute::Schedule& schedule, const compute::Step& step) {
    return !std::string(name_of(step)).starts_with(name) || !compute::touches_slice(schedule, step);
  };
}

// Refuses half of the steps that touch slices, the same ones whenever it is asked.
Supports slices_at_random(std::uint64_t seed) {
  return [seed](const compute::Schedule& schedule, const compute::Step& step) {
    std::string key = name_of(step) + std::to_string(seed);
    compute::for_each_tensor(
        step, [&](compute::TensorId id, compute::Access) { key += " " + std::to_string(id); });
    return !compute::touches_slice(schedule, step) || hash_text(key) % 2 == 0;
  };
}

// Everything that a concatenation may join: units, pools, bare convolutions, what others read as
// well, one tensor twice, another concatenation, a tensor that two concatenations join.
Graph joined_branches() {
  GraphBuilder g;
  int layers = 0;
  const auto convolution = [&](compute::TensorId x, int channels, int size = 1) {
    return g.convolution("conv" + std::to_string(++layers), x,
                         {.channels = channels, .height = size, .width = size});
  };
  const auto unit = [&](compute::TensorId x, int channels, int size = 1) {
    return g.relu(
        g.batch_norm("bn" + std::to_string(++layers), convolution(x, channels, size), {}));
  };
  const GraphBuilder::PoolOptions same{.size = 3, .stride = 1, .padding = Padding::same};
  compute::TensorId x =
      g.input(9, 8, 3, {compute::Normalisation::standardise_image, {}, {}, false});
  x = unit(x, 4, 3);
  const compute::TensorId middle = unit(x, 3);
  x = g.beside({unit(x, 5), g.beside({unit(middle, 2, 3), unit(middle, 3)}), g.max_pool(x, same),
                unit(g.average_pool(x, same), 2)});
  const compute::TensorId read_too = unit(x, 4);
  x = g.beside({g.batch_norm("bare", convolution(x, 3), {}), g.average_pool(x, same), read_too,
                g.relu(convolution(read_too, 2, 3))});
  x = g.beside({x, unit(x, 2)});
  const compute::TensorId twice = unit(x, 3);
  x = g.sum(convolution(g.beside({twice, convolution(x, 2), twice}), 5),
            convolution(g.beside({twice, x}), 5));
  const compute::TensorId joined = g.beside({unit(x, 4), g.shortcut(x, 1, 6)});
  x = g.sum(joined, g.dropout(convolution(x, 10), 0.7f));  // of both, the gradient is one tensor
  g.loss(g.matrix_product("fc", g.global_pool(x), 5, {}, 0.0, true));
  return std::move(g).finish();
}

std::size_t bytes_of(const compute::Schedule& schedule) {
  std::vector<std::size_t> sizes;
  for (const compute::Shape& shape : schedule.tensors) sizes.push_back(64 * shape.elements());
  return compute::plan_memory(schedule, sizes).bytes;
}

}  // namespace

TEST_CASE("join in place: training comes to the same, whatever is refused") {
  const Graph graph = joined_branches();
  const Batch batch = random_batch(batch_size, 9, 8, 3, 5);
  const auto parameters = some_parameters(graph);
  const Outcome copied = train_once(schedule_of(graph, nothing, false), parameters, batch);
  std::vector<Supports> backends{everything, nothing, whole_tensors};
  for (const char* name : {"Concat", "BatchNormApply", "BatchNormBackward", "MaxPool", "Average",
                           "Add", "Convolution", "ChannelSlice", "Dropout", "Shortcut"})
    backends.push_back(no_slice_in(name));
  for (std::uint64_t seed = 0; seed < 40; ++seed) backends.push_back(slices_at_random(seed));

  for (const Supports& supports : backends)
    check_agree(graph, train_once(schedule_of(graph, supports), parameters, batch), copied);
}

TEST_CASE("join in place: where all is supported, only what has two places is copied") {
  const compute::Schedule s = schedule_of(joined_branches(), everything);
  const compute::Schedule copies = schedule_of(joined_branches(), whole_tensors);

  // `twice` has three places.
  CHECK(steps_named(copies, "Concat") == 7);
  CHECK(steps_named(copies, "ChannelSlice") == 19);
  CHECK(steps_named(s, "Concat") == 2);
  CHECK(steps_named(s, "ChannelSlice") == 0);
  for (const auto& [id, slice] : s.slices) {
    CHECK_FALSE(s.is_slice(slice.of));
    CHECK(slice.first + s.tensors[id].channels <= s.tensors[slice.of].channels);
  }
}

TEST_CASE("join in place: a backend without slices keeps its concatenations") {
  const compute::Schedule s = schedule_of(joined_branches(), whole_tensors);

  CHECK(s.slices.empty());
}

TEST_CASE("join in place: an evaluation joins as well") {
  const compute::Schedule s =
      make_schedule(joined_branches(), batch_size, Mode::evaluation, 0, everything);

  CHECK(steps_named(s, "Concat") == 2);
  CHECK(s.backward == s.steps.size());
}

TEST_CASE("join in place: oneDNN joins what lies in whole blocks, and merges, with equal results") {
  GraphBuilder g;
  const auto norm = [&](const std::string& name, compute::TensorId x) {
    return g.relu(g.batch_norm("bn" + name, x, {}));
  };
  compute::TensorId x =
      g.input(9, 8, 3, {compute::Normalisation::standardise_image, {}, {}, false});
  x = norm("0", g.convolution("0", x, {.channels = 16, .height = 3, .width = 3}));
  const compute::TensorId a = g.convolution("a", x, {.channels = 32}),
                          b = g.convolution("b", x, {.channels = 16});
  const compute::TensorId c =
      g.convolution("c", norm("b", b), {.channels = 16, .height = 3, .width = 3});
  x = g.beside({norm("a", a), norm("c", c),
                g.max_pool(x, {.size = 3, .stride = 1, .padding = Padding::same})});
  g.loss(g.matrix_product("fc", g.global_pool(x), 5, {}, 0.0, true));
  const Graph graph = std::move(g).finish();
  const Batch batch = random_batch(batch_size, 9, 8, 3, 5);
  const auto parameters = some_parameters(graph);
  const auto backend = compute::make_onednn_backend();
  const compute::Schedule s =
      schedule_of(graph, [&](const compute::Schedule& tensors, const compute::Step& step) {
        return backend->supports(tensors, step);
      });
  Memory& memory = backend->memory();
  const Buffer values = memory.allocate(graph.parameter_count()),
               gradients = memory.allocate(graph.parameter_count()),
               statistics = memory.allocate(graph.statistic_count()),
               moments = memory.allocate(graph.statistic_count());
  std::ranges::copy(parameters, values.view().data());

  backend->compile(s, {values, gradients, statistics, moments}, 7)
      ->run(batch, 1. / batch_size, nullptr);

  const Outcome copied = train_once(schedule_of(graph, nothing, false), parameters, batch);
  CHECK(steps_named(s, "ConvolutionForward") == 3);
  CHECK(steps_named(s, "Concat") == 1);  // the pool's
  CHECK(steps_named(s, "ChannelSlice") == 1);
  double difference = 0, largest = 0;
  for (std::size_t i = 0; i < copied.gradients.size(); ++i) {
    difference = std::max(difference, std::abs(copied.gradients[i] - gradients.view().host()[i]));
    largest = std::max(largest, std::abs(copied.gradients[i]));
  }
  CHECK(difference < 1e-5 * largest);
}

TEST_CASE("join in place: what is not copied takes no memory") {
  const Graph graph = joined_branches();

  CHECK(bytes_of(schedule_of(graph, everything)) < bytes_of(schedule_of(graph, whole_tensors)));
}
