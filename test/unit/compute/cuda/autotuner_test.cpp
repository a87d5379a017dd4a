// cuDNN's proposals for a convolution, timed on a simulated GPU whose engines take as long as the
// test says.
#include "compute/cuda/engines/autotuner.hpp"

#include "compute/cuda/engines/convolution.hpp"
#include "ringtrain/base/error.hpp"
#include "support/catch.hpp"
#include "support/host_gpu/host_gpu.hpp"
#include "support/host_gpu/interpreter.hpp"
#include "support/host_gpu_case.hpp"
#include "support/temporary_folder.hpp"

using namespace ringtrain;
using namespace ringtrain::compute;
using namespace ringtrain::compute::cuda;

namespace {

constexpr std::size_t any_workspace = std::size_t(1) << 30;

Request asked() {
  constexpr TensorId x = 0, dy = 1;
  Schedule s;
  s.tensors = {{2, 7, 5, 24}, {2, 7, 5, 16}};
  s.parameters = 3 * 3 * 24 * 16;
  s.batch = 2;
  return request(s, ConvolutionWeightGradient{{3, 3, 1, 1, 1, 1, 1, 1}, x, dy, {0, s.parameters}},
                 Element::fp16);
}

// One run of a program, as far as engines are concerned.
struct Tuning {
  explicit Tuning(const std::filesystem::path& folder = {}, Autotuner::Settings settings = {})
      : cache(folder, {cudnnGetVersion(), "simulated", 90, false}),
        runner(make_cudnn_runner(stream)),
        engines(runner->target(), {}, &cache),
        fusions(Element::fp16, engines, *runner, stream),
        tuner(engines, *runner, cache, stream, fusions, settings) {
    host_gpu::set_seed(1);
    for (const OperationGraph::Value& value : graph.values()) {
      memory.push_back(std::make_unique<GpuValues>(host_gpu::bytes_of(value) / sizeof(float) + 1));
      data.push_back(value.operand ? memory.back()->data() : nullptr);
    }
  }
  ~Tuning() { host_gpu::set_engine_time({}); }

  std::vector<std::size_t> places(std::size_t workspace = any_workspace,
                                  std::size_t most = 20) const {
    std::vector<std::size_t> places;
    for (const Engine& engine : engines.candidates(graph, most, workspace))
      places.push_back(engine.place);
    return places;
  }
  const Answer& answer() { return engines.ask(asked()); }
  std::size_t tune() {
    answer();
    tuner.tune({{asked().key(), &graph, data}});
    return answer().engine->place;
  }

  const GpuStream stream;
  const OperationGraph graph = asked().graph();
  std::vector<std::unique_ptr<GpuValues>> memory;
  std::vector<void*> data;
  EngineCache cache;
  std::unique_ptr<CudnnRunner> runner;
  Engines engines;
  FusionCheck fusions;
  Autotuner tuner;
};

// The engine at `place` is the fastest by far.
host_gpu::EngineTime favouring(std::size_t place) {
  return [=](const std::string&, std::size_t at) { return at == place ? 200 : 500; };
}

}  // namespace

TEST_CASE("autotuner: the fastest of cuDNN's proposals is the answer from then on") {
  Tuning run;
  const auto places = run.places();
  REQUIRE(places.size() >= 3);
  CHECK(run.answer().engine->place == places[0]);
  const std::size_t wanted = GENERATE_COPY(as<std::size_t>{}, places[0], places[1], places.back());
  host_gpu::set_engine_time(favouring(wanted));

  CHECK(run.tune() == wanted);

  CHECK(run.answer().source == Answer::Source::timing);
  CHECK(run.tuner.report().requests == 1);
  CHECK(run.tuner.report().plans == places.size());
  CHECK(run.tuner.report().dropped.empty());
  CHECK(host_gpu::complaints() == std::vector<std::string>{});
}

TEST_CASE("autotuner: a request is timed once") {
  Tuning run;
  const auto places = run.places();
  host_gpu::set_engine_time(favouring(places[1]));
  run.tune();
  host_gpu::set_engine_time(favouring(places[2]));
  const std::size_t graphs = host_gpu::counts().graphs;

  CHECK(run.tune() == places[1]);

  CHECK(host_gpu::counts().graphs == graphs);
  CHECK(run.tuner.report().requests == 1);
}

TEST_CASE("autotuner: a later run follows the choice, tuned or not, and times nothing") {
  const TemporaryFolder folder;
  std::size_t wanted = 0;
  {
    Tuning run(folder.path());
    wanted = run.places()[2];
    host_gpu::set_engine_time(favouring(wanted));
    run.tune();
  }
  Tuning run(folder.path());

  CHECK(run.answer().engine->place == wanted);
  CHECK(run.answer().source == Answer::Source::cache);
  CHECK(run.tune() == wanted);

  CHECK(run.tuner.report().plans == 0);
  CHECK(host_gpu::counts().engines == 0);
}

TEST_CASE("autotuner: a choice is ignored when its proposal is another engine now, or gone") {
  const TemporaryFolder folder;
  Tuning run(folder.path());
  const auto places = run.places();
  const bool is_gone = GENERATE(false, true);
  const Choice choice = is_gone ? Choice{100000, run.answer().engine->name, 1, 0}
                                : Choice{places[1], "cudnn engine 99999", 1, 0};
  run.cache.add(asked().key(), choice);
  run.cache.save();

  Tuning later(folder.path());

  CHECK(later.answer().engine->place == places[0]);
  CHECK(later.answer().source == Answer::Source::heuristics);
}

TEST_CASE("autotuner: a proposal that cannot be executed is dropped, and its reason kept") {
  Tuning run;
  const auto places = run.places();
  host_gpu::set_engine_time([&](const std::string&, std::size_t at) -> std::uint64_t {
    if (at == places[1]) throw Error("cudnnBackendExecute", "out of some resource");
    return at == places[2] ? 200 : 300;
  });

  CHECK(run.tune() == places[2]);

  REQUIRE(run.tuner.report().dropped.size() == 1);
  CHECK_THAT(run.tuner.report().dropped[0],
             Catch::Contains("out of some resource") && Catch::Contains(asked().pattern));
}

TEST_CASE("autotuner: a proposal that cannot be captured is dropped") {
  Tuning run;
  const auto places = run.places();
  int runs = 0;
  host_gpu::set_engine_time([&](const std::string&, std::size_t at) -> std::uint64_t {
    if (at == places[0] && ++runs == 3) throw Error("cudnnBackendExecute", "not while capturing");
    return 100;
  });

  CHECK(run.tune() == places[1]);

  CHECK(run.tuner.report().dropped.size() == 1);
}

TEST_CASE(
    "autotuner: where no proposal can be executed the heuristics' choice stays, for this run") {
  const TemporaryFolder folder;
  {
    Tuning run(folder.path());
    host_gpu::set_engine_time([](const std::string&, std::size_t) -> std::uint64_t {
      throw Error("cudnnBackendExecute", "no");
    });

    CHECK(run.tune() == run.places()[0]);

    CHECK(run.tuner.report().dropped.size() == run.places().size());
  }
  CHECK(Tuning(folder.path()).answer().source == Answer::Source::heuristics);
}

TEST_CASE("autotuner: a proposal much slower than the best is given up after one sample") {
  Tuning run;
  const auto places = run.places();
  host_gpu::set_engine_time(
      [&](const std::string&, std::size_t at) { return at == places[0] ? 100 : 400; });

  CHECK(run.tune() == places[0]);

  CHECK(host_gpu::counts().graphs == 5 + (places.size() - 1));
}

TEST_CASE("autotuner: no more proposals are timed than it is told") {
  Tuning run({}, {.most_candidates = 2});
  host_gpu::set_engine_time(favouring(run.places()[2]));

  CHECK(run.tune() != run.places()[2]);

  CHECK(run.tuner.report().plans == 2);
}

TEST_CASE("autotuner: proposals that want too much workspace are passed over") {
  Tuning run({}, {.most_candidates = 1000, .most_workspace = 0});
  const auto all = run.places(any_workspace, 1000), lean = run.places(0, 1000);
  REQUIRE(lean.size() < all.size());
  REQUIRE_FALSE(lean.empty());

  run.tune();

  CHECK(run.tuner.report().plans == lean.size());
  CHECK(run.answer().engine->workspace == 0);
}
