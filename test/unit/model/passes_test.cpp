#include "ringtrain/model/passes.hpp"

#include <algorithm>
#include <cmath>

#include "ringtrain/compute/backend.hpp"
#include "ringtrain/model/zoo.hpp"
#include "support/catch.hpp"
#include "support/random_batch.hpp"
#include "unit/model/schedules.hpp"

using namespace ringtrain;
using namespace ringtrain::model;

namespace {

std::vector<std::string> names(const compute::Schedule& schedule) {
  std::vector<std::string> result;
  for (const compute::Step& step : schedule.steps) result.emplace_back(name_of(step));
  return result;
}

// A small network with every operation, two heads, a residual and a concatenation.
Graph everything_network() {
  GraphBuilder g;
  const Initialiser initial{Initialiser::Kind::normal, 0.3};
  const auto convolution = [&](const std::string& name, compute::TensorId x, int channels, int size,
                               int stride = 1) {
    return g.convolution(name, x,
                         {.channels = channels,
                          .height = size,
                          .width = size,
                          .stride = stride,
                          .initial = initial,
                          .bias = 0.1});
  };
  compute::TensorId x = g.input(9, 7, 3, {compute::Normalisation::standardise_image, {}, {}, true});
  x = g.relu(convolution("conv1", x, 6, 3));
  x = g.lrn(g.max_pool(x, {.size = 3, .stride = 2, .padding = Padding::same}),
            {.radius = 2, .alpha = 0.1f});
  const compute::TensorId kept = x;
  x = g.relu(g.batch_norm("bn1", convolution("conv2", x, 6, 3), {}));
  x = g.batch_norm("bn2", convolution("conv3", x, 6, 3), {.gamma = false, .unbiased = false});
  x = g.relu(g.sum(x, kept));
  const compute::TensorId shortcut = g.shortcut(x, 2, 8);
  x = g.batch_norm("bn3", convolution("conv4", x, 8, 3, 2), {});
  x = g.relu(g.sum(x, shortcut));
  x = g.beside({x, g.relu(convolution("conv5", x, 3, 1)),
                g.average_pool(x, {.size = 3, .stride = 1, .padding = Padding::same})});
  const compute::TensorId side = g.matrix_product("side", g.global_pool(x), 5, initial, 0.0, true);
  x = g.dropout(g.relu(g.matrix_product("fc1", x, 11, initial, 0.1, true)), 0.7f);
  g.loss(g.matrix_product("fc2", x, 5, initial, std::nullopt, true));
  g.loss(side, {.weight = 0.4f, .auxiliary = true});
  return std::move(g).finish();
}

struct FloatOutcome {
  compute::StepResult result;
  std::vector<float> gradients, batch_statistics;
};

FloatOutcome train_in_floats(const Graph& graph, const compute::Schedule& schedule,
                             std::vector<float> parameters, const Batch& batch) {
  FloatOutcome o{
      {}, std::vector<float>(graph.parameter_count()), std::vector<float>(graph.statistic_count())};
  std::vector<float> statistics(graph.statistic_count()), unused(graph.parameter_count());
  initialise(graph, 3, unused, statistics);
  const auto view = [](std::vector<float>& v) { return View(v.data(), v.size()); };
  const auto program = compute::make_reference_backend()->compile(
      schedule, {view(parameters), view(o.gradients), view(statistics), view(o.batch_statistics)},
      7);
  o.result = program->run(batch, 1.0 / batch.size(), nullptr);
  return o;
}

std::vector<float> initial_parameters(const Graph& graph) {
  std::vector<float> parameters(graph.parameter_count()), statistics(graph.statistic_count());
  initialise(graph, 3, parameters, statistics);
  return parameters;
}

}  // namespace

TEST_CASE("passes: fused and unfused schedules agree on every gradient") {
  const Graph graph = everything_network();
  const Batch batch = random_batch(4, 9, 7, 3, 5);
  const auto parameters = initial_parameters(graph);

  const FloatOutcome plain = train_in_floats(
      graph, make_schedule(graph, 4, Mode::training, 0.1f, nothing, false), parameters, batch);
  const compute::Schedule fused_schedule =
      make_schedule(graph, 4, Mode::training, 0.1f, everything);
  const FloatOutcome fused = train_in_floats(graph, fused_schedule, parameters, batch);

  CHECK(fused.result.loss == Approx(plain.result.loss).epsilon(1e-12));
  CHECK(fused.batch_statistics == plain.batch_statistics);
  for (std::size_t i = 0; i < plain.gradients.size(); ++i)
    REQUIRE(fused.gradients[i] == Approx(plain.gradients[i]).epsilon(1e-6).margin(1e-9));
  CHECK(steps_named(fused_schedule, "Pointwise") == 0);
  CHECK(fused_schedule.steps.size() <
        make_schedule(graph, 4, Mode::training, 0, nothing, false).steps.size());
}

TEST_CASE("passes: the gradients of a whole network are those of its loss") {
  Graph graph = everything_network();
  // Below what learns, between, above, on a branch, and nothing.
  const char* const frozen = GENERATE("", "conv1", "conv1,conv2,bn1", "bn*", "*,!fc2",
                                      "conv2,bn2,conv4,fc1,side", "bn1,bn3,!conv1", "*,!conv5");
  CAPTURE(frozen);
  if (*frozen != 0) freeze(graph, frozen);
  const Batch batch = random_batch(3, 9, 7, 3, 5);
  auto parameters = initial_parameters(graph);
  const compute::Schedule schedule = make_schedule(graph, 3, Mode::training, 0.1f, everything);

  const FloatOutcome analytic = train_in_floats(graph, schedule, parameters, batch);

  // A large step may cross a kink of ReLU or a pool; the better of two counts.
  const auto ranges = graph.parameter_ranges();
  for (std::size_t p = 0; p < ranges.size(); ++p) {
    const std::size_t i = ranges[p].first + ranges[p].count / 2;
    CAPTURE(graph.parameters[p].name, i);
    if (graph.parameters[p].frozen) {
      CHECK(analytic.gradients[i] == 0);
      continue;
    }
    double best = 1e9;
    for (const float h : {0x1p-11f, 0x1p-16f}) {
      const float kept = parameters[i];
      parameters[i] = kept + h;
      const float above = parameters[i];
      const double loss_above = train_in_floats(graph, schedule, parameters, batch).result.loss;
      parameters[i] = kept - h;
      const double loss_below = train_in_floats(graph, schedule, parameters, batch).result.loss;
      const double numeric =
          (loss_above - loss_below) / (double(above) - parameters[i]) / batch.size();
      parameters[i] = kept;
      best = std::min(best, std::abs(numeric - analytic.gradients[i]) / (std::abs(numeric) + 1e-3));
    }
    CHECK(best < 2e-3);
  }
}

TEST_CASE("passes: what the backend refuses stays unfused") {
  const Graph graph = make_model("resnet20", 10).graph;

  const compute::Schedule refused = make_schedule(graph, 2, Mode::training, 0, nothing);
  const compute::Schedule fused = make_schedule(graph, 2, Mode::training, 0, everything);

  CHECK(steps_named(refused, "Pointwise") == 19);
  CHECK(steps_named(fused, "Pointwise") == 0);
  CHECK(steps_named(fused, "PointwiseBackward") == 0);
  CHECK(steps_named(fused, "Add") == 0);
}

TEST_CASE("passes: cifar10_cnn masks its gradients in LRN, and only the small ones alone") {
  const compute::Schedule s =
      make_schedule(make_model("cifar10_cnn", 10).graph, 2, Mode::training, 0, everything);

  CHECK(steps_named(s, "PointwiseBackward") == 2);  // local3 and local4
  CHECK(std::ranges::all_of(s.steps, [](const compute::Step& step) {
    const auto* lrn = std::get_if<compute::LrnBackward>(&step);
    return !lrn || lrn->mask;
  }));
}

TEST_CASE("passes: the image has no gradient, and weights come before inputs") {
  const compute::Schedule s =
      make_schedule(make_model("cifar10_cnn", 10).graph, 2, Mode::training, 0, everything);

  CHECK(steps_named(s, "ConvolutionInputGradient") == 1);
  const auto order = names(s);
  CHECK(order.back() == "ConvolutionWeightGradient");
  CHECK(std::ranges::find(order, "MatrixProductWeightGradient") <
        std::ranges::find(order, "MatrixProductInputGradient"));
  CHECK(compute::finality(s).back() == 0);
}

TEST_CASE("passes: an evaluation has no backward, no auxiliary head and no mask") {
  const compute::Schedule s =
      make_schedule(everything_network(), 2, Mode::evaluation, 0.1f, everything);

  CHECK(s.backward == s.steps.size());
  CHECK(steps_named(s, "SoftmaxCrossEntropy") == 1);
  CHECK(steps_named(s, "MatrixProductForward") == 2);
  for (const compute::Step& step : s.steps) {
    if (const auto* norm = std::get_if<compute::BatchNormForward>(&step))
      CHECK_FALSE(norm->training);
    if (const auto* drop = std::get_if<compute::Dropout>(&step)) CHECK(drop->how.keep == 1);
    if (const auto* input = std::get_if<compute::Input>(&step)) CHECK_FALSE(input->jitter);
    if (const auto* loss = std::get_if<compute::SoftmaxCrossEntropy>(&step))
      CHECK(loss->smoothing == 0);
  }
}

TEST_CASE("passes: a prediction is an evaluation without a loss, which gives the logits") {
  const compute::Schedule evaluation =
      make_schedule(everything_network(), 2, Mode::evaluation, 0, everything);
  const compute::Schedule s =
      make_schedule(everything_network(), 2, Mode::prediction, 0, everything);

  CHECK(s.steps.size() + 1 == evaluation.steps.size());
  CHECK(steps_named(s, "SoftmaxCrossEntropy") == 0);
  CHECK(s.logits == std::get<compute::SoftmaxCrossEntropy>(evaluation.steps.back()).logits);
  CHECK(evaluation.logits != compute::no_tensor);
}

TEST_CASE("passes: images are jittered and clipped in training only") {
  GraphBuilder g;
  const ImageInput how{.mean = {0.5f}, .deviation = {0.5f}, .jitter = true, .clip = true};
  g.loss(g.matrix_product("fc", g.input(2, 2, 1, how), 2, {}, 0.0, true));
  const Graph graph = std::move(g).finish();

  for (const Mode mode : {Mode::training, Mode::evaluation}) {
    const compute::Schedule s = make_schedule(graph, 2, mode, 0, everything);
    const auto& input = std::get<compute::Input>(s.steps.front());
    CHECK(input.jitter == (mode == Mode::training));
    CHECK(input.clip == (mode == Mode::training));
  }
}

TEST_CASE("passes: images that are standardised cannot be clipped") {
  GraphBuilder g;

  CHECK_THROWS_WITH(
      g.input(2, 2, 1, {.normalisation = compute::Normalisation::standardise_image, .clip = true}),
      Catch::Contains("mean and deviation"));
}

TEST_CASE("passes: a layer that does not fit says which and why") {
  GraphBuilder g;
  const compute::TensorId x = g.input(4, 4, 3, {});

  CHECK_THROWS_WITH(
      g.convolution("big", x, {.channels = 2, .height = 5, .width = 5, .padding = Padding::valid}),
      Catch::Contains("layer big") && Catch::Contains("5x5") && Catch::Contains("4x4x3"));
  CHECK_THROWS_WITH(g.sum(x, g.max_pool(x, {})),
                    Catch::Contains("4x4x3") && Catch::Contains("2x2x3"));
}
