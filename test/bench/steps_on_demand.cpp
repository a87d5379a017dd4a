// steps_on_demand MODEL BATCH THREADS [fp32|bf16]: our side of arena.py. MODEL is a name or the
// path of a file NAME.model. For every number on standard input, trains so many steps on a batch in
// memory and prints the seconds they took.
#include <fmt/core.h>
#include <omp.h>

#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string_view>

#include "ringtrain/base/clock.hpp"
#include "ringtrain/base/philox.hpp"
#include "ringtrain/compute/backend.hpp"
#include "ringtrain/host/threads.hpp"
#include "ringtrain/model/model_file.hpp"
#include "ringtrain/model/passes.hpp"
#include "ringtrain/model/zoo.hpp"
#include "ringtrain/optim/optimizer.hpp"
#include "support/random_batch.hpp"

using namespace ringtrain;

namespace {

model::Model model_of(const std::string& name) {
  if (!name.ends_with(".model")) return model::make_model(name, 10);
  std::ifstream file(name);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  return model::read_model_file(text, name, 10, [](const model::Recipe&) {});
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4 && argc != 5) return 64;
  host::flush_denormals();  // as in train
  const model::Model model = model_of(argv[1]);
  const int batch_size = std::stoi(argv[2]);
  omp_set_num_threads(std::stoi(argv[3]));
  const bool bf16 = argc == 5 && std::string_view(argv[4]) == "bf16";
  const auto backend = compute::make_onednn_backend(nullptr, bf16 ? Element::bf16 : Element::fp32);
  const model::Graph& graph = model.graph;
  const Buffer parameters = backend->memory().allocate(graph.parameter_count());
  const Buffer gradients = backend->memory().allocate(graph.parameter_count());
  const Buffer statistics = backend->memory().allocate(graph.statistic_count());
  const Buffer batch_statistics = backend->memory().allocate(graph.statistic_count());
  model::initialise(graph, 1, parameters.view().host(), statistics.view().host());
  optim::OptimizerSettings settings;
  settings.kind = model.name.starts_with("cifar10_cnn") ? optim::OptimizerKind::sgd
                                                        : optim::OptimizerKind::momentum;
  optim::Optimizer optimizer(settings, parameters, gradients, backend->memory());
  const auto program = backend->compile(
      model::make_schedule(graph, batch_size, model::Mode::training, 0,
                           [&](const compute::Schedule& s, const compute::Step& step) {
                             return backend->supports(s, step);
                           }),
      {parameters, gradients, statistics, batch_statistics}, 1);
  const Batch batch =
      random_batch(batch_size, model.input.height, model.input.width, model.input.channels, 10);

  std::int64_t step = 0;
  for (int count; std::cin >> count;) {
    Stopwatch watch;
    for (int i = 0; i < count; ++i) {
      program->run(batch, 1.0 / batch_size, nullptr);
      optimizer.begin({step++, 0.01, 1});
      optimizer.update({0, graph.parameter_count()});
    }
    fmt::print("{:.6f}\n", watch.lap());
    std::fflush(stdout);
  }
}
