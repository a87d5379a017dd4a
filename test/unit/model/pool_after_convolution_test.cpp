// Average pools behind the 1x1 convolutions that read them: the same results from fewer channels.
#include <utility>
#include <variant>

#include "support/catch.hpp"
#include "support/random_batch.hpp"
#include "support/some_parameters.hpp"
#include "support/training_outcome.hpp"
#include "unit/model/schedules.hpp"

using namespace ringtrain;
using namespace ringtrain::model;

namespace {

struct Layers {
  int channels = 6, out = 3;
  int stride = 1, kernel = 1;
  bool bias = false, read_twice = false;
};

Graph network(const Layers& layers) {
  GraphBuilder g;
  compute::TensorId x =
      g.input(9, 8, 3, {compute::Normalisation::standardise_image, {}, {}, false});
  x = g.convolution("first", x, {.channels = layers.channels, .height = 3, .width = 3});
  const compute::TensorId pooled =
      g.average_pool(x, {.size = 3, .stride = layers.stride, .padding = Padding::same});
  const GraphBuilder::ConvolutionOptions options{
      .channels = layers.out,
      .height = layers.kernel,
      .width = layers.kernel,
      .bias = layers.bias ? std::optional<Initialiser>(0.0) : std::nullopt};
  compute::TensorId y = g.convolution("behind", pooled, options);
  if (layers.read_twice) y = g.beside({y, pooled});
  g.loss(g.matrix_product("fc", g.global_pool(y), 10, {}, 0.0, true));
  return std::move(g).finish();
}

// The channels of what is pooled; the last pool is that over the whole image.
int pooled_channels(const compute::Schedule& schedule) {
  for (const compute::Step& step : schedule.steps)
    if (const auto* pool = std::get_if<compute::AveragePoolForward>(&step))
      return schedule.tensors[pool->x].channels;
  return 0;
}

}  // namespace

TEST_CASE("passes: an average pool goes behind a 1x1 convolution of fewer channels") {
  CHECK(pooled_channels(schedule_of(network({}), nothing)) == 3);
  CHECK(pooled_channels(schedule_of(network({.bias = true}), nothing)) == 3);
  CHECK(pooled_channels(schedule_of(network({}), nothing, false)) == 6);  // without fusions

  CHECK(pooled_channels(schedule_of(network({.out = 6}), nothing)) == 6);
  CHECK(pooled_channels(schedule_of(network({.out = 12}), nothing)) == 6);
  CHECK(pooled_channels(schedule_of(network({.stride = 2}), nothing)) == 6);
  CHECK(pooled_channels(schedule_of(network({.kernel = 3}), nothing)) == 6);
  CHECK(pooled_channels(schedule_of(network({.read_twice = true}), nothing)) == 6);
}

TEST_CASE("passes: an average pool behind its convolution trains to the same gradients") {
  const Graph graph = network({.bias = GENERATE(false, true)});
  const Batch batch = random_batch(batch_size, 9, 8, 3, 10);
  const auto parameters = some_parameters(graph);

  check_agree(graph, train_once(schedule_of(graph, nothing), parameters, batch),
              train_once(schedule_of(graph, nothing, false), parameters, batch));
}
