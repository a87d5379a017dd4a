// Programs that give logits, against evaluations of the same network.
#include <cmath>
#include <numeric>
#include <span>
#include <utility>

#include "ringtrain/compute/backend.hpp"
#include "ringtrain/model/passes.hpp"
#include "ringtrain/model/zoo.hpp"
#include "support/catch.hpp"
#include "support/random_batch.hpp"
#include "unit/model/schedules.hpp"

using namespace ringtrain;
using namespace ringtrain::model;

namespace {

constexpr int classes = 10;

/// A network with its first values, for any number of programs.
struct Initialised {
  explicit Initialised(const std::string& name, Memory& memory)
      : graph(make_model(name, classes).graph),
        parameters(memory.allocate(graph.parameter_count())),
        statistics(memory.allocate(graph.statistic_count())) {
    initialise(graph, 3, parameters.view().host(), statistics.view().host());
  }
  std::unique_ptr<compute::Program> compile(compute::Backend& backend, Mode mode) const {
    const Supports supports = [&](const compute::Schedule& tensors, const compute::Step& step) {
      return backend.supports(tensors, step);
    };
    return backend.compile(make_schedule(graph, batch_size, mode, 0, supports),
                           {parameters, View(), statistics, View()}, 7);
  }
  Batch batch() const {
    compute::Shape image = graph.tensors[0];
    image.batch = batch_size;
    return random_batch(image, classes);
  }

  Graph graph;
  Buffer parameters, statistics;
};

std::vector<float> predict(const Initialised& network, compute::Backend& backend, Batch batch) {
  for (Sample& sample : batch.samples) sample.target = {1 << 30};  // which nobody is to read
  const auto program = network.compile(backend, Mode::prediction);
  const compute::StepResult result = program->run(batch, 1, nullptr);
  CHECK(result.samples == 0);
  return program->logits();
}

}  // namespace

TEST_CASE("prediction: the logits are those of which an evaluation makes loss and hits") {
  const std::string name = GENERATE("mlp", "cifar10_cnn", "resnet20");
  const Element element =
      GENERATE(filter(compute::cpu_trains_in, values({Element::fp32, Element::bf16})));
  const auto backend = compute::make_onednn_backend(nullptr, element);
  const Initialised network(name, backend->memory());
  const Batch batch = network.batch();
  const compute::StepResult evaluated =
      network.compile(*backend, Mode::evaluation)->run(batch, 1, nullptr);

  const std::vector<float> logits = predict(network, *backend, batch);

  REQUIRE(logits.size() == batch_size * classes);
  double loss = 0;
  int hits = 0;
  for (int n = 0; n < batch_size; ++n) {
    const int label = batch.samples[n].target.label;
    const auto of_sample = std::span(logits).subspan(n * classes, classes);
    const double sum = std::accumulate(of_sample.begin(), of_sample.end(), 0.0,
                                       [](double all, float x) { return all + std::exp(x); });
    loss += std::log(sum) - of_sample[label];
    hits += std::ranges::max_element(of_sample) - of_sample.begin() == label;
  }
  CHECK(loss == Approx(evaluated.loss).epsilon(1e-5));
  CHECK(hits == evaluated.top1);
}

TEST_CASE("prediction: oneDNN's logits are the reference's") {
  const std::string name = GENERATE("mlp", "cifar10_cnn", "resnet20");
  const auto backend = compute::make_onednn_backend(),
             reference = compute::make_reference_backend();
  const Initialised network(name, backend->memory());

  const std::vector<float> logits = predict(network, *backend, network.batch()),
                           exact = predict(network, *reference, network.batch());

  REQUIRE(logits.size() == exact.size());
  for (std::size_t i = 0; i < exact.size(); ++i)
    CHECK(logits[i] == Approx(exact[i]).epsilon(1e-3).margin(1e-4));
}
