// Whole networks, planned for an H100 and run on a simulated GPU, against the reference.
#include <algorithm>

#include "compute/cuda/engines/operation_graph.hpp"
#include "compute/reference/state.hpp"
#include "ringtrain/compute/gpu.hpp"
#include "ringtrain/model/passes.hpp"
#include "ringtrain/model/zoo.hpp"
#include "support/catch.hpp"
#include "support/host_gpu/host_gpu.hpp"
#include "support/kernel_case.hpp"
#include "support/random_batch.hpp"
#include "support/shrink.hpp"
#include "support/some_parameters.hpp"
#include "support/temporary_folder.hpp"

using namespace ringtrain;
using namespace ringtrain::compute;

namespace {

constexpr int batch_size = 6;
constexpr double sample_weight = 1. / batch_size;

struct NetworkOutcome {
  StepResult result;
  std::vector<double> gradients, batch_statistics;
};

std::vector<float> to_float(const std::vector<double>& values) {
  return {values.begin(), values.end()};
}

std::vector<double> some_statistics(const model::Graph& graph) {
  std::vector<double> values;
  for (const model::Statistic& statistic : graph.statistics) {
    values.insert(values.end(), statistic.channels, 0.125);
    values.insert(values.end(), statistic.channels, 1.5);
  }
  return values;
}

// Random, but with quiet residual branches: else rounding errors grow from block to block until the
// first ReLU that falls to the other side.
std::vector<double> calm_parameters(const model::Graph& graph) {
  std::vector<double> values = some_parameters(graph);
  const auto ranges = graph.parameter_ranges();
  const bool bottlenecks = std::ranges::any_of(
      graph.parameters, [](const model::Parameter& p) { return p.name.ends_with("bn3.weight"); });
  for (std::size_t p = 0; p < ranges.size(); ++p) {
    const std::string& name = graph.parameters[p].name;
    if (!name.ends_with(bottlenecks ? "bn3.weight" : "bn2.weight")) continue;
    for (std::size_t i = ranges[p].first; i < ranges[p].end(); ++i) values[i] /= 8;
  }
  return values;
}

Schedule schedule_of_reference(const model::Graph& graph, model::Mode mode) {
  return model::make_schedule(
      graph, batch_size, mode, 0.1f, [](const Schedule&, const Step&) { return false; }, false);
}

NetworkOutcome run_reference(const model::Graph& graph, model::Mode mode, const Batch& batch) {
  const Schedule schedule = schedule_of_reference(graph, mode);
  reference::State state(schedule, 7);
  state.parameters = calm_parameters(graph);
  state.statistics = some_statistics(graph);
  state.batch = &batch;
  state.sample_weight = sample_weight;
  for (const Step& step : schedule.steps) reference::run_step(step, state);
  return {state.result, state.gradients, state.batch_statistics};
}

// Buffers of one network on the GPU.
struct Buffered {
  Buffered(const model::Graph& graph, Memory& memory)
      : memory(memory),
        parameters(memory.allocate(graph.parameter_count())),
        gradients(memory.allocate(graph.parameter_count())),
        statistics(memory.allocate(graph.statistic_count())),
        batch_statistics(memory.allocate(graph.statistic_count())) {
    memory.write(to_float(calm_parameters(graph)), parameters);
    memory.write(to_float(some_statistics(graph)), statistics);
  }
  std::vector<double> read(const Buffer& buffer) const {
    std::vector<float> values(buffer.view().size());
    memory.read(buffer, values);
    return {values.begin(), values.end()};
  }
  Memory& memory;
  Buffer parameters, gradients, statistics, batch_statistics;
};

// As training makes it: without what the GPU computes wrongly.
Schedule checked_schedule(const model::Graph& graph, model::Mode mode, GpuBackend& backend,
                          bool fuse) {
  for (;;) {
    Schedule schedule = model::make_schedule(
        graph, batch_size, mode, 0.1f,
        [&](const Schedule& s, const Step& step) { return backend.supports(s, step); }, fuse);
    const std::vector<GpuRefusal> refusals = backend.check_fusions(schedule);
    if (refusals.empty()) return schedule;
    const bool simulated = host_gpu::counts().live_bytes > 0;
    REQUIRE(!simulated);  // its engines are right
    backend.refuse(refusals);
  }
}

NetworkOutcome run_gpu(const model::Graph& graph, model::Mode mode, GpuBackend& backend,
                       const Batch& batch, bool fuse) {
  const Buffered b(graph, backend.memory());
  const Schedule schedule = checked_schedule(graph, mode, backend, fuse);
  const auto program =
      backend.compile(schedule, {b.parameters, b.gradients, b.statistics, b.batch_statistics}, 7);
  std::size_t known = graph.parameter_count();
  const StepResult result = program->run(batch, sample_weight, [&](std::size_t first) {
    CHECK(first < known);
    known = first;
  });
  CHECK(known == (mode == model::Mode::training ? 0 : graph.parameter_count()));
  return {result, b.read(b.gradients), b.read(b.batch_statistics)};
}

NetworkOutcome run_gpu(const model::Graph& graph, model::Mode mode, const GpuSettings& settings,
                       const Batch& batch, bool fuse) {
  return run_gpu(graph, mode, *make_gpu_backend(settings), batch, fuse);
}

// Of few engines, for tests that run each of them often.
model::Graph small_network() {
  const model::Initialiser initial{model::Initialiser::Kind::normal, 0.3};
  model::GraphBuilder g;
  TensorId x = g.input(8, 8, 3, {Normalisation::standardise_image, {}, {}, true});
  for (const char* name : {"1", "2"}) {
    x = g.convolution(name, x, {.channels = 8, .height = 3, .width = 3, .initial = initial});
    x = g.relu(g.batch_norm(std::string("bn") + name, x, {}));
  }
  g.loss(g.matrix_product("fc", g.global_pool(x), 10, initial, 0.0, true));
  return std::move(g).finish();
}

// Concatenations of all that a block of Inception joins, one of them nested; two convolutions that
// are merged.
model::Graph blocks_of_branches() {
  const model::Initialiser initial{model::Initialiser::Kind::normal, 0.3};
  model::GraphBuilder g;
  int layers = 0;
  const auto convolution = [&](TensorId x, int channels, int size = 1, int stride = 1) {
    return g.convolution(std::to_string(++layers), x,
                         {.channels = channels,
                          .height = size,
                          .width = size,
                          .stride = stride,
                          .initial = initial});
  };
  const auto norm = [&](TensorId x) {
    return g.relu(g.batch_norm("bn" + std::to_string(++layers), x, {.gamma = false}));
  };
  const auto unit = [&](TensorId x, int channels, int size = 1, int stride = 1) {
    return norm(convolution(x, channels, size, stride));
  };
  const model::GraphBuilder::PoolOptions same{
      .size = 3, .stride = 1, .padding = model::Padding::same};
  TensorId x = g.input(12, 12, 3, {Normalisation::standardise_image, {}, {}, true});
  x = unit(x, 16, 3);
  const TensorId one = convolution(x, 16), other = convolution(x, 8);
  x = g.beside({norm(one), unit(norm(other), 24, 3), unit(g.average_pool(x, same), 8)});
  x = g.beside({unit(x, 16, 3, 2),
                g.max_pool(x, {.size = 3, .stride = 2, .padding = model::Padding::same})});
  const TensorId middle = unit(x, 16);
  x = g.beside(
      {unit(x, 8), g.beside({unit(middle, 8, 3), unit(middle, 16)}),
       g.relu(g.convolution("bare", x, {.channels = 8, .initial = initial, .bias = 0.0}))});
  g.loss(g.matrix_product("fc", g.global_pool(x), 10, initial, 0.0, true));
  return std::move(g).finish();
}

// Slices that are two operands of one step: what is normalised and added, and a gradient.
model::Graph operands_given_twice() {
  model::GraphBuilder g;
  const auto convolution = [&](const char* name, TensorId x) {
    return g.convolution(name, x,
                         {.channels = 8, .initial = {model::Initialiser::Kind::normal, 0.3}});
  };
  TensorId x = g.input(6, 6, 3, {Normalisation::standardise_image, {}, {}, true});
  const TensorId kept = g.relu(g.batch_norm("1", convolution("a", x), {}));
  const TensorId twice = g.batch_norm("2", convolution("b", kept), {});
  x = g.beside({g.sum(g.batch_norm("3", kept, {}), kept), kept, g.sum(twice, twice)});
  g.loss(g.matrix_product("fc", g.global_pool(x), 10, {model::Initialiser::Kind::normal, 0.3}, 0.0,
                          true));
  return std::move(g).finish();
}

// Small enough for plain loops. Shrunk ones keep channels that cuDNN's fused engines take.
model::Graph network_of(const std::string& name) {
  if (name == "small") return small_network();
  if (name == "branches") return blocks_of_branches();
  if (name == "operands") return operands_given_twice();
  const model::Graph whole = model::make_model(name, 10).graph;
  if (name == "resnet50") return Shrunk(whole, 64, 8).graph();
  if (name == "resnet18") return Shrunk(whole, 32, 8).graph();
  return whole;
}

struct Errors {
  double loss, gradients, batch_statistics;
};

Errors errors_of(const NetworkOutcome& actual, const NetworkOutcome& exact) {
  return {std::abs(actual.result.loss / exact.result.loss - 1),
          relative_norm(actual.gradients, exact.gradients),
          relative_norm(actual.batch_statistics, exact.batch_statistics)};
}

// Rounding to 16 bits grows through BatchNorm layers, differently in each network. A fused program
// may round elsewhere, but not be much worse than one whose every kernel is tested alone.
void check_agrees(const std::string& name, model::Mode mode, const GpuSettings& settings) {
  const Element element = settings.element;
  const model::Graph graph = network_of(name);
  const Shape image = graph.tensors[graph.nodes[0].output];
  const Batch batch = random_batch(batch_size, image.height, image.width, image.channels, 10);
  host_gpu::set_seed(3);

  const NetworkOutcome fused = run_gpu(graph, mode, settings, batch, true);
  const NetworkOutcome apart = run_gpu(graph, mode, settings, batch, false);

  const NetworkOutcome exact = run_reference(graph, mode, batch);
  const Errors error = errors_of(fused, exact), other = errors_of(apart, exact);
  const double least = element == Element::fp32 ? 1e-5 : element == Element::fp16 ? 0.01 : 0.08;
  CAPTURE(error.loss, other.loss, error.gradients, other.gradients);
  CHECK(fused.result.samples == batch_size);
  CHECK(error.loss < least + 2 * other.loss);
  CHECK(error.gradients < least + 2 * other.gradients);
  CHECK(error.batch_statistics < least + 2 * other.batch_statistics);
  CHECK(other.loss < 3 * least);
  CHECK(other.gradients < (element == Element::fp32 ? 1e-3 : 12 * least));
  if (element == Element::fp32) CHECK(fused.result.top1 == exact.result.top1);
  CHECK(host_gpu::complaints() == std::vector<std::string>{});
}

}  // namespace

TEST_CASE("cuda program: networks agree with the reference") {
  const std::string name = GENERATE(as<std::string>(), "mlp", "cifar10_cnn", "resnet20", "resnet18",
                                    "resnet50", "branches", "operands");
  const auto mode = GENERATE(model::Mode::training, model::Mode::evaluation);
  const auto element = GENERATE(Element::fp32, Element::fp16, Element::bf16);
  CAPTURE(name, mode == model::Mode::training, name_of(element));

  check_agrees(name, mode, {.element = element});
}

TEST_CASE("cuda program: the logits of a prediction are the reference's") {
  const std::string name = GENERATE("mlp", "resnet20");
  const auto element = GENERATE(Element::fp32, Element::fp16, Element::bf16);
  const model::Graph graph = network_of(name);
  const Shape image = graph.tensors[graph.nodes[0].output];
  const Batch batch = random_batch(batch_size, image.height, image.width, image.channels, 10);
  const auto backend = make_gpu_backend({.element = element});
  const Buffered b(graph, backend->memory());
  const Schedule schedule = checked_schedule(graph, model::Mode::prediction, *backend, true);
  const auto program =
      backend->compile(schedule, {b.parameters, View(), b.statistics, b.batch_statistics}, 7);

  program->run(batch, 1, nullptr);

  const Schedule exact = schedule_of_reference(graph, model::Mode::prediction);
  reference::State state(exact, 7);
  state.parameters = calm_parameters(graph);
  state.statistics = some_statistics(graph);
  state.batch = &batch;
  for (const Step& step : exact.steps) reference::run_step(step, state);
  const std::vector<float> logits = program->logits();
  const double error =
      relative_norm(std::vector<double>(logits.begin(), logits.end()), state[exact.logits]);
  CHECK(error < (element == Element::fp32 ? 1e-5 : 0.05));
}

TEST_CASE(
    "cuda program: of concatenations, only what a convolution writes is copied, and two are "
    "merged") {
  const auto element = GENERATE(Element::fp32, Element::fp16, Element::bf16);
  const auto backend = make_gpu_backend({.element = element});
  const Schedule s = model::make_schedule(
      blocks_of_branches(), batch_size, model::Mode::training, 0.1f,
      [&](const Schedule& s, const Step& step) { return backend->supports(s, step); });
  const auto steps = [&](const std::string& name) {
    return std::ranges::count_if(s.steps, [&](const Step& step) { return name_of(step) == name; });
  };

  CHECK(steps("Concat") == 1);
  CHECK(steps("ChannelSlice") == 1);
  CHECK(s.slices.size() == 19 + 4);
  CHECK(steps("ConvolutionForward") == 11 - 1);
}

TEST_CASE("cuda program: with engines that were timed a network agrees with the reference") {
  const auto element = GENERATE(Element::fp32, Element::fp16, Element::bf16);
  const bool deterministic = GENERATE(false, true);

  check_agrees("small", model::Mode::training,
               {.element = element, .deterministic = deterministic, .autotune = true});
}

TEST_CASE("cuda program: a faster engine whose results are wrong is not chosen", "[simulated]") {
  const model::Graph graph = small_network();
  const Batch batch = random_batch(batch_size, 8, 8, 3, 10);
  host_gpu::set_seed(3);
  GpuSettings settings{.element = Element::fp16};
  const NetworkOutcome expected = run_gpu(graph, model::Mode::training, settings, batch, true);
  settings.autotune = true;
  host_gpu::set_engine_fault([](const cuda::OperationGraph& operations, std::size_t place) {
    const bool fused = std::ranges::any_of(operations.operations(), [](const auto& operation) {
      return operation.kind == cuda::OperationGraph::Kind::statistics;
    });
    return fused && place > 0 ? host_gpu::EngineFault::off : host_gpu::EngineFault::none;
  });

  const auto tuned = make_gpu_backend(settings);
  const NetworkOutcome outcome = run_gpu(graph, model::Mode::training, *tuned, batch, true);
  host_gpu::set_engine_fault({});

  CHECK(outcome.gradients == expected.gradients);
  REQUIRE(!tuned->engines().dropped.empty());
  CHECK_THAT(tuned->engines().dropped.front(), Catch::Contains("differ from those of its parts"));
}

TEST_CASE("cuda program: engines are timed before the first step, once and for later runs",
          "[simulated]") {
  const TemporaryFolder folder;
  GpuSettings settings{.element = Element::fp16, .cache_folder = folder.path()};
  const model::Graph graph = small_network();
  const Batch batch = random_batch(batch_size, 8, 8, 3, 10);
  const auto run = [&](GpuBackend& backend) {
    host_gpu::set_seed(3);
    return run_gpu(graph, model::Mode::training, backend, batch, true);
  };
  const auto plain = make_gpu_backend(settings);
  const NetworkOutcome expected = run(*plain);
  const std::size_t engines_a_step = host_gpu::counts().engines;
  host_gpu::set_seed(3);
  checked_schedule(graph, model::Mode::training, *make_gpu_backend(settings), true);
  const std::size_t checks = host_gpu::counts().engines;  // of the fused steps, part of that
  // The later the proposal, the faster.
  host_gpu::set_engine_time([](const std::string&, std::size_t place) {
    return std::uint64_t(2000 - 20 * std::min<std::size_t>(place, 90));
  });
  settings.autotune = true;

  const auto tuned = make_gpu_backend(settings);
  const NetworkOutcome outcome = run(*tuned);
  const GpuEngines engines = tuned->engines();

  CHECK(outcome.gradients == expected.gradients);  // all engines are the same loops
  CHECK(outcome.result.loss == expected.result.loss);
  CHECK(engines.timed > 4);
  CHECK(engines.plans > engines.timed);
  CHECK(engines.known == 0);
  CHECK(engines.dropped.empty());
  CHECK(engines.notes.empty());
  CHECK(engines.fingerprint != plain->engines().fingerprint);
  // Warm-ups, and the fused steps' choices are checked as their first engines were.
  CHECK(host_gpu::counts().engines == engines_a_step + engines.plans + checks);
  CHECK(host_gpu::complaints() == std::vector<std::string>{});

  for (const bool autotune : {true, false}) {
    settings.autotune = autotune;
    const auto later = make_gpu_backend(settings);
    CHECK(run(*later).gradients == expected.gradients);
    CHECK(later->engines().plans == 0);
    CHECK(later->engines().known == engines.timed);
    CHECK(later->engines().fingerprint == engines.fingerprint);
    CHECK(host_gpu::counts().engines == engines_a_step);
  }
  host_gpu::set_engine_time({});
}
