// Where the time of a training step goes on this host's CPUs, by kind of step.
// usage: step_bench [MODEL [BATCH [RUNS [fp32|bf16 [each]]]]]; `each` lists every step.
// OMP_NUM_THREADS sets the threads.
#include <fmt/core.h>

#include <algorithm>
#include <ctime>
#include <map>
#include <numeric>

#include "compute/onednn/program.hpp"
#include "ringtrain/model/passes.hpp"
#include "ringtrain/model/zoo.hpp"
#include "support/random_batch.hpp"

using namespace ringtrain;

namespace {

double median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + std::ssize(values) / 2);
  return values[values.size() / 2];
}

void print_kinds(const compute::Schedule& schedule,
                 const std::vector<std::vector<double>>& seconds) {
  std::map<std::string, double> kinds;
  double total = 0;
  for (std::size_t s = 0; s < schedule.steps.size(); ++s) {
    kinds[compute::name_of(schedule.steps[s])] += median(seconds[s]);
    total += median(seconds[s]);
  }
  std::vector<std::pair<double, std::string>> sorted;
  for (const auto& [name, time] : kinds) sorted.emplace_back(time, name);
  std::ranges::sort(sorted, std::greater{});
  for (const auto& [time, name] : sorted)
    fmt::print("{:28} {:9.3f} ms {:5.1f} %\n", name, 1e3 * time, 100 * time / total);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string name = argc > 1 ? argv[1] : "cifar10_cnn";
  const int batch = argc > 2 ? std::stoi(argv[2]) : 128, steps = argc > 3 ? std::stoi(argv[3]) : 20;
  const model::Graph graph = model::make_model(name, model::default_classes(name)).graph;
  const bool bf16 = argc > 4 && std::string(argv[4]) == "bf16";
  const auto backend = compute::make_onednn_backend(nullptr, bf16 ? Element::bf16 : Element::fp32);
  const auto supports = [&](const compute::Schedule& at, const compute::Step& step) {
    return backend->supports(at, step);
  };
  const compute::Schedule schedule =
      model::make_schedule(graph, batch, model::Mode::training, 0, supports);
  Buffer parameters = backend->memory().allocate(schedule.parameters),
         gradients = backend->memory().allocate(schedule.parameters),
         statistics = backend->memory().allocate(schedule.statistics),
         batch_statistics = backend->memory().allocate(schedule.statistics);
  model::initialise(graph, 1, parameters.view().host(), statistics.view().host());
  const auto program =
      backend->compile(schedule, {parameters, gradients, statistics, batch_statistics}, 1);
  const auto& onednn = dynamic_cast<const compute::onednn::OnednnProgram&>(*program);
  const Batch data = random_batch(schedule.tensors[0]);

  std::vector<std::vector<double>> seconds(schedule.steps.size());
  std::vector<double> whole, cpu;
  for (int s = -3; s < steps; ++s) {
    const std::clock_t begin = std::clock();
    program->run(data, 1.0 / batch, nullptr);
    if (s < 0) continue;
    cpu.push_back(double(std::clock() - begin) / CLOCKS_PER_SEC);
    for (std::size_t i = 0; i < seconds.size(); ++i) seconds[i].push_back(onednn.step_seconds()[i]);
    whole.push_back(
        std::accumulate(onednn.step_seconds().begin(), onednn.step_seconds().end(), 0.0));
  }
  fmt::print(
      "{} batch {}: median {:.2f} ms, best {:.2f} ms, cpu {:.2f} ms, {:.0f} examples/s, {:.1f} "
      "MiB\n",
      name, batch, 1e3 * median(whole), 1e3 * *std::ranges::min_element(whole), 1e3 * median(cpu),
      batch / median(whole), double(program->bytes()) / (1 << 20));
  print_kinds(schedule, seconds);
  if (argc > 5)
    for (std::size_t i = 0; i < seconds.size(); ++i)
      fmt::print("{:4} {:28} {:9.3f} ms\n", i, compute::name_of(schedule.steps[i]),
                 1e3 * median(seconds[i]));
  std::map<std::string, int> kernels;
  for (const std::string& kernel : onednn.implementations()) ++kernels[kernel];
  for (const auto& [kernel, count] : kernels) fmt::print("{:3} x {}\n", count, kernel);
}
