// BatchNorm over the images of all ranks: several ranks, as threads, against one with all images.
#include <algorithm>
#include <cmath>
#include <thread>

#include "ringtrain/compute/backend.hpp"
#include "ringtrain/model/passes.hpp"
#include "support/catch.hpp"
#include "support/part_of_batch.hpp"
#include "support/random_batch.hpp"
#include "support/rank_threads.hpp"
#include "support/some_parameters.hpp"

using namespace ringtrain;
using namespace ringtrain::model;

namespace {

constexpr int all_images = 7;

// BatchNorms with a ReLU, with a sum behind, without gamma; channels that fill no vector.
Graph network() {
  GraphBuilder g;
  const auto convolution = [&](const char* name, compute::TensorId x) {
    return g.convolution(name, x, {.channels = 6, .height = 3, .width = 3});
  };
  compute::TensorId x = g.input(6, 5, 3, {compute::Normalisation::standardise_image, {}, {}, true});
  x = g.relu(g.batch_norm("bn1", convolution("conv1", x), {}));
  const compute::TensorId kept = x;
  x = g.batch_norm("bn2", convolution("conv2", x), {.gamma = false, .unbiased = false});
  x = g.relu(g.sum(x, kept));
  x = g.batch_norm("bn3", convolution("conv3", x), {});
  g.loss(g.matrix_product("fc", g.global_pool(x), 10, {}, 0.0, true));
  return std::move(g).finish();
}

// Images as numbers just above 1000.
Graph far_from_zero() {
  GraphBuilder g;
  compute::TensorId x = g.input(
      6, 5, 3,
      {compute::Normalisation::mean_deviation, std::vector<float>(3, -1000), {1, 1, 1}, false});
  x = g.batch_norm("bn", x, {});
  g.loss(g.matrix_product("fc", g.global_pool(x), 10, {}, 0.0, true));
  return std::move(g).finish();
}

struct RankOutcome {
  std::vector<float> gradients, batch_statistics;
};

RankOutcome train_part(const Graph& graph, const std::string& backend_name, const Batch& batch,
                       BatchNorms norms, bool fuse, float running_mean,
                       const compute::Program::SumOverRanks& sum) {
  const auto weights = some_parameters(graph);
  std::vector<float> parameters(weights.begin(), weights.end());
  std::vector<float> running(graph.statistic_count(), running_mean);
  RankOutcome o{std::vector<float>(parameters.size()), std::vector<float>(running.size())};
  const auto view = [](std::vector<float>& v) { return View(v.data(), v.size()); };
  const auto backend = compute::make_backend(backend_name);
  const Supports supports = [&](const compute::Schedule& s, const compute::Step& step) {
    return backend->supports(s, step);
  };
  const auto program = backend->compile(
      make_schedule(graph, batch.size(), Mode::training, 0.1f, supports, fuse, norms),
      {view(parameters), view(o.gradients), view(running), view(o.batch_statistics)}, 7);
  program->run(batch, 1.0 / all_images, nullptr, sum);
  return o;
}

/// On `ranks` threads, of which the first have an image more where the batch does not divide.
std::vector<RankOutcome> train_on_ranks(const Graph& graph, const std::string& backend,
                                        const Batch& whole, int ranks, bool fuse,
                                        float running_mean) {
  RankThreads all(ranks);
  std::vector<RankOutcome> outcomes(ranks);
  std::vector<std::jthread> threads;
  for (int rank = 0, first = 0; rank < ranks; ++rank) {
    const int count = whole.size() / ranks + (rank < whole.size() % ranks);
    threads.emplace_back([&, rank, part = part_of_batch(whole, first, count)] {
      outcomes[rank] = train_part(graph, backend, part, BatchNorms::all_ranks, fuse, running_mean,
                                  [&](View values) { all.sum(rank, values); });
    });
    first += count;
  }
  threads.clear();
  return outcomes;
}

double relative_distance(const std::vector<float>& actual, const std::vector<float>& expected) {
  double difference = 0, length = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    difference += std::pow(double(actual.at(i)) - expected[i], 2);
    length += std::pow(double(expected[i]), 2);
  }
  return std::sqrt(difference / length);
}

std::vector<float> sum_of_gradients(const std::vector<RankOutcome>& outcomes) {
  std::vector<float> sum(outcomes[0].gradients.size());
  for (const RankOutcome& o : outcomes)
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += o.gradients[i];
  return sum;
}

}  // namespace

TEST_CASE("all ranks: gradients and statistics are those of one rank with all images", "[onednn]") {
  const auto backend = GENERATE(as<std::string>(), "reference", "onednn");
  const auto ranks = GENERATE(1, 2, 3, 4);
  const bool fuse = GENERATE(false, true);
  CAPTURE(backend, ranks, fuse);
  const Graph graph = network();
  const Batch batch = random_batch(all_images, 6, 5, 3, 10);
  const RankOutcome one =
      train_part(graph, "reference", batch, BatchNorms::each_rank, false, 0, nullptr);

  const auto outcomes = train_on_ranks(graph, backend, batch, ranks, fuse, 0.25f);

  CHECK(relative_distance(sum_of_gradients(outcomes), one.gradients) < 2e-6);
  for (const RankOutcome& o : outcomes) {
    CHECK(relative_distance(o.batch_statistics, one.batch_statistics) < 1e-6);
    CHECK(o.batch_statistics == outcomes[0].batch_statistics);
  }
}

TEST_CASE("all ranks: what is far from zero keeps its digits beside the running mean", "[onednn]") {
  const auto backend = GENERATE(as<std::string>(), "reference", "onednn");
  const Graph graph = far_from_zero();
  const Batch batch = random_batch(all_images, 6, 5, 3, 10);
  const RankOutcome one =
      train_part(graph, backend, batch, BatchNorms::each_rank, false, 0, nullptr);

  const auto outcomes = train_on_ranks(graph, backend, batch, 2, false, 1000.25f);

  CHECK(outcomes[0].batch_statistics[4] == Approx(one.batch_statistics[4]).epsilon(1e-5));
}

TEST_CASE("all ranks: alone, without a sum, a rank trains on its own images", "[onednn]") {
  const auto backend = GENERATE(as<std::string>(), "reference", "onednn");
  const Graph graph = network();
  const Batch batch = random_batch(all_images, 6, 5, 3, 10);

  const RankOutcome own =
      train_part(graph, backend, batch, BatchNorms::each_rank, true, 0, nullptr);
  const RankOutcome alone =
      train_part(graph, backend, batch, BatchNorms::all_ranks, true, 0, nullptr);

  CHECK(relative_distance(alone.gradients, own.gradients) < 2e-6);
}

TEST_CASE("all ranks: every BatchNorm of training is whole and asks for it, none of evaluation") {
  const Supports everything = [](const compute::Schedule&, const compute::Step&) { return true; };
  const auto asking = [&](Mode mode, BatchNorms norms) {
    int count = 0;
    const compute::Schedule s = make_schedule(network(), 2, mode, 0.1f, everything, true, norms);
    for (const compute::Step& step : s.steps) {
      if (const auto* norm = std::get_if<compute::BatchNormForward>(&step))
        count += norm->all_ranks;
      if (const auto* norm = std::get_if<compute::BatchNormBackward>(&step))
        count += norm->all_ranks;
    }
    return count;
  };

  CHECK(asking(Mode::training, BatchNorms::all_ranks) == 6);
  CHECK(asking(Mode::training, BatchNorms::each_rank) == 0);
  CHECK(asking(Mode::evaluation, BatchNorms::all_ranks) == 0);
}
