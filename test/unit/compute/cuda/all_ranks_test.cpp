// BatchNorm over all ranks on a GPU: one rank of two against the same rank of the reference. What
// the other rank hands in is the reference's, played back.
#include <thread>

#include "compute/cuda/kernels/arguments/optimizer.hpp"
#include "ringtrain/compute/gpu.hpp"
#include "ringtrain/model/passes.hpp"
#include "support/catch.hpp"
#include "support/host_gpu/host_gpu.hpp"
#include "support/kernel_case.hpp"
#include "support/part_of_batch.hpp"
#include "support/random_batch.hpp"
#include "support/rank_threads.hpp"
#include "support/some_parameters.hpp"

using namespace ringtrain;
using namespace ringtrain::compute;

namespace {

constexpr int images[] = {4, 3};

model::Graph norm_network() {
  const model::Initialiser initial{model::Initialiser::Kind::normal, 0.3};
  model::GraphBuilder g;
  TensorId x = g.input(8, 8, 3, {Normalisation::standardise_image, {}, {}, true});
  TensorId kept = x;
  for (const char* name : {"1", "2", "3"}) {
    kept = x;
    x = g.convolution(name, x, {.channels = 8, .height = 3, .width = 3, .initial = initial});
    x = g.batch_norm(std::string("bn") + name, x, {.gamma = name[0] != '2'});
    x = g.relu(name[0] == '3' ? g.sum(x, kept) : x);
  }
  // Two of one tensor, side by side.
  x = g.beside({g.relu(g.batch_norm("left", x, {})), g.relu(g.batch_norm("right", x, {}))});
  g.loss(g.matrix_product("fc", g.global_pool(x), 10, initial, 0.0, true));
  return std::move(g).finish();
}

struct RankOutcome {
  std::vector<float> gradients, batch_statistics;
};

// The running statistics are zero: so are the points that the reference's distances start from, and
// it hands in what a GPU does.
RankOutcome run(Backend& backend, const Batch& batch, const Program::SumOverRanks& sum) {
  const model::Graph graph = norm_network();
  const auto weights = some_parameters(graph);
  Memory& memory = backend.memory();
  const Buffer parameters = memory.allocate(graph.parameter_count()),
               gradients = memory.allocate(graph.parameter_count()),
               statistics = memory.allocate(graph.statistic_count()),
               batch_statistics = memory.allocate(graph.statistic_count());
  memory.write(std::vector<float>(weights.begin(), weights.end()), parameters);
  memory.write(std::vector<float>(graph.statistic_count()), statistics);
  const auto program = backend.compile(
      model::make_schedule(
          graph, batch.size(), model::Mode::training, 0.1f,
          [&](const Schedule& s, const Step& step) { return backend.supports(s, step); }, true,
          model::BatchNorms::all_ranks),
      {parameters, gradients, statistics, batch_statistics}, 7);
  program->run(batch, 1. / 7, nullptr, sum);
  RankOutcome o{std::vector<float>(graph.parameter_count()),
                std::vector<float>(graph.statistic_count())};
  memory.read(gradients, o.gradients);
  memory.read(batch_statistics, o.batch_statistics);
  return o;
}

}  // namespace

TEST_CASE("cuda: a rank's gradients and statistics are the reference's, over all ranks") {
  const Batch whole = random_batch(images[0] + images[1], 8, 8, 3, 10);
  const Batch parts[] = {part_of_batch(whole, 0, images[0]),
                         part_of_batch(whole, images[0], images[1])};
  RankThreads all(2);
  RankOutcome expected[2];
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < 2; ++rank)
      threads.emplace_back([&, rank] {
        expected[rank] = run(*make_reference_backend(), parts[rank],
                             [&](View values) { all.sum(rank, values); });
      });
  }
  const int rank = GENERATE(0, 1);
  CAPTURE(rank);
  host_gpu::set_seed(4);
  const auto gpu = make_gpu_backend({.element = Element::fp32});
  std::vector<Buffer> others;
  for (const auto& values : all.handed_in(1 - rank)) {
    others.push_back(gpu->memory().allocate(values.size()));
    gpu->memory().write(values, others.back());
  }

  std::size_t calls = 0;
  const RankOutcome actual = run(*gpu, parts[rank], [&](View values) {
    const View other = others.at(calls++);
    REQUIRE(values.size() == other.size());
    cuda::kernels::accumulate(values.size(), other.data(), values.data(),
                              static_cast<cudaStream_t>(gpu->stream()));
  });

  CHECK(calls == 10);
  CHECK(relative_norm(actual.batch_statistics, expected[rank].batch_statistics) < 1e-5);
  CHECK(relative_norm(actual.gradients, expected[rank].gradients) < 1e-4);
  CHECK(host_gpu::complaints() == std::vector<std::string>{});
}
