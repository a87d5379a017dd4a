// cuDNN's proposals for a convolution, timed on a simulated GPU whose engines take as long as the
// test says.
#include "compute/cuda/engines/autotuner.hpp"

#include <cuda_fp16.h>

#include <algorithm>
#include <cmath>

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
  return request(
      s, ConvolutionWeightGradient{Window{3, 3, 1, 1, 1, 1, 1, 1}, x, dy, {0, s.parameters}},
      Element::fp16);
}

// One run of a program, as far as engines are concerned.
struct Tuning {
  explicit Tuning(const std::filesystem::path& folder = {},
                  const Autotuner::Settings& settings = {})
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
  ~Tuning() {
    host_gpu::set_engine_time({});
    host_gpu::set_observer({});
    host_gpu::set_memory(host_gpu::whole_bytes);
  }

  std::vector<std::size_t> places(std::size_t workspace = any_workspace,
                                  std::size_t most = 20) const {
    std::vector<std::size_t> places;
    for (const Engine& engine : engines.candidates(graph, most, workspace))
      places.push_back(engine.place);
    return places;
  }
  const Answer& answer() { return engines.ask(asked()); }
  std::size_t tune(View parameters = {}) {
    answer();
    tuner.tune({{asked().key(), &graph, data, parameters}});
    return answer().engine->place;
  }
  /// The numbers that value `i` of the graph has now.
  std::vector<float> numbers(std::size_t i) const {
    const std::size_t bytes = host_gpu::bytes_of(graph.values()[i]);
    const PinnedValues copy(bytes / sizeof(float) + 1, 0);
    REQUIRE(cudaMemcpyAsync(copy.data(), data[i], bytes, cudaMemcpyDeviceToHost, stream) ==
            cudaSuccess);
    REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
    std::vector<float> numbers;
    for (std::size_t k = 0; k < bytes / sizeof(__half); ++k)
      numbers.push_back(static_cast<float>(reinterpret_cast<const __half*>(copy.data())[k]));
    return numbers;
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

TEST_CASE("autotuner: who follows takes another's choices, times nothing and keeps nothing") {
  const TemporaryFolder folder;
  Tuning leader;
  const std::size_t wanted = leader.places()[2];
  const bool asked_before = GENERATE(false, true);
  Tuning run(folder.path());
  if (asked_before) CHECK(run.answer().source == Answer::Source::heuristics);
  host_gpu::set_engine_time(favouring(wanted));
  leader.tune();
  const std::size_t graphs = host_gpu::counts().graphs;

  run.cache.follow(leader.cache.text());
  run.tuner.follow();

  CHECK(run.tune() == wanted);
  CHECK(run.tuner.report().plans == 0);
  CHECK(host_gpu::counts().graphs == graphs);
  CHECK(std::filesystem::is_empty(folder.path()));
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
    if (at == places[0] && ++runs == 2) throw Error("cudnnBackendExecute", "not while capturing");
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

TEST_CASE("autotuner: a proposal much slower than the best is given up after two samples") {
  Tuning run;
  const auto places = run.places();
  host_gpu::set_engine_time(
      [&](const std::string&, std::size_t at) { return at == places[0] ? 100 : 400; });

  CHECK(run.tune() == places[0]);

  CHECK(host_gpu::counts().graphs == 4 * (5 + 2 * (places.size() - 1)));
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

namespace {

constexpr int runs_a_sample = 4, samples = 5;

// What the GPU does, as far as time is concerned.
std::vector<std::string>& watched() {
  static std::vector<std::string> all;
  all.clear();
  host_gpu::set_observer([](const std::string& what) {
    if (what.starts_with("engine") || what.starts_with("fill")) all.push_back(what);
  });
  return all;
}

double deviation(const std::vector<float>& numbers) {
  double sum = 0, squares = 0;
  for (const float v : numbers) sum += v, squares += double(v) * v;
  const double count = double(numbers.size());
  return std::sqrt(squares / count - sum / count * (sum / count));
}

}  // namespace

TEST_CASE("autotuner: proposals take turns, each run behind a flush of the L2 cache") {
  Tuning run;
  const auto places = run.places();
  REQUIRE(places.size() >= 3);
  host_gpu::set_engine_time(favouring(places[1]));
  const auto& seen = watched();

  run.tune();

  std::vector<std::string> expected;
  const auto engine = [](std::size_t place) { return "engine " + std::to_string(place); };
  for (const std::size_t place : places)  // once to load, and never timed
    expected.push_back(engine(place));
  for (int sample = 0; sample < samples; ++sample)
    for (const std::size_t place : places)
      for (int i = 0; i < runs_a_sample; ++i) {
        expected.push_back("fill 2097152");  // twice the simulated L2 cache
        expected.push_back(engine(place));
      }
  CHECK(std::vector(seen.begin(), seen.begin() + std::ssize(expected)) == expected);
  CHECK(std::ranges::count(seen, "fill 2097152") == samples * runs_a_sample * std::ssize(places));
}

TEST_CASE("autotuner: the time of the flush is not counted") {
  const TemporaryFolder folder;
  Tuning run(folder.path());
  const auto places = run.places();
  host_gpu::set_engine_time([](const std::string&, std::size_t) { return 100; });

  run.tune();

  const Choice* choice =
      EngineCache(folder.path(), {cudnnGetVersion(), "simulated", 90, false}).find(asked().key());
  REQUIRE(choice != nullptr);
  CHECK(choice->microseconds >= 100);
  // Each run, its launch and the two events take a microsecond of their own.
  CHECK(choice->microseconds <= 100 + 1 + 2);
}

TEST_CASE("autotuner: the median decides, not samples in which the GPU was disturbed") {
  Tuning run;
  const auto places = run.places();
  host_gpu::set_engine_time(
      [&](const std::string&, std::size_t at) { return at == places[1] ? 300 : 310; });
  std::size_t flushes = 0;
  host_gpu::set_observer([&](const std::string& what) {
    if (what.starts_with("fill")) ++flushes;
    const std::size_t round = (flushes - 1) / (runs_a_sample * places.size());
    const bool disturbed = flushes > 0 && (round == 0 || round == samples - 1);
    if (disturbed && what == "engine " + std::to_string(places[1])) host_gpu::take(400);
  });

  CHECK(run.tune() == places[1]);
}

TEST_CASE("autotuner: proposals read numbers as training has them, and constants stay") {
  Tuning run;
  run.tune();

  const std::vector<bool> written = run.graph.written();
  std::size_t inputs = 0;
  for (std::size_t i = 0; i < written.size(); ++i) {
    if (written[i] || !run.graph.values()[i].operand) continue;
    const std::vector<float> numbers = run.numbers(i);
    const bool is_gradient = i == run.graph.operations()[0].tensors[0];
    CHECK(deviation(numbers) == Approx(is_gradient ? 1. / 16 : 1).epsilon(0.2));
    CHECK(std::ranges::count(numbers, 0.f) < std::ssize(numbers) / 5);
    ++inputs;
  }
  CHECK(inputs == 2);
}

TEST_CASE("autotuner: parameters are not overwritten") {
  Tuning run;
  const std::size_t x = run.graph.operations()[0].tensors[1];
  const PinnedValues given(run.memory[x]->bytes() / sizeof(float), 3.f);
  run.memory[x]->write(given, run.stream);

  run.tune({static_cast<float*>(run.data[x]), run.memory[x]->bytes() / sizeof(float)});

  CHECK(run.memory[x]->read(run.stream) == 3.f);
}

TEST_CASE("autotuner: what there is no time for is left, and known to no later run") {
  const TemporaryFolder folder;
  double now = 0;
  // Late before the first proposal, or between two of them.
  const double most = GENERATE(-1., 2.5);
  {
    Tuning run(folder.path(), {.most_seconds = most, .clock = [&] { return ++now; }});
    host_gpu::set_engine_time(favouring(run.places()[1]));
    const std::size_t before = host_gpu::counts().live_bytes;

    CHECK(run.tune() == run.places()[0]);

    CHECK(run.tuner.report().left == 1);
    CHECK(run.tuner.report().requests == 0);
    CHECK(run.tuner.report().plans < run.places().size());
    CHECK(run.answer().source == Answer::Source::heuristics);
    CHECK(host_gpu::counts().live_bytes == before);
  }
  CHECK(Tuning(folder.path()).answer().source == Answer::Source::heuristics);
}

TEST_CASE("autotuner: with too little memory to empty the L2 cache all is left as it is") {
  Tuning run;
  run.answer();
  const std::size_t before = host_gpu::counts().live_bytes;
  host_gpu::set_memory(before + (1 << 20));

  CHECK(run.tune() == run.places()[0]);

  CHECK(run.tuner.report().left == 1);
  CHECK(run.tuner.report().dropped.size() == 1);
  CHECK(cudaGetLastError() == cudaSuccess);  // with which the next launch would answer
  CHECK(host_gpu::counts().live_bytes == before);
}

TEST_CASE("autotuner: progress is shown, and no more often than asked for") {
  double now = 0;
  std::vector<std::string> lines;
  Tuning run({}, {.clock = [&] { return now; },
                  .progress_seconds = 5,
                  .progress = [&](const std::string& line) { lines.push_back(line); }});
  // Four kinds of steps on the same memory, each of which takes three seconds.
  std::vector<EngineUse> uses;
  for (int i = 0; i < 4; ++i) {
    Request one = asked();
    one.shape += std::to_string(i);
    run.engines.ask(one);
    uses.push_back({one.key(), &run.graph, run.data});
    uses.push_back(uses.back());  // a second step of the same kind counts once
  }
  host_gpu::set_engine_time(favouring(run.places()[0]));  // none is given up
  std::size_t fills = 0;
  host_gpu::set_observer([&](const std::string& what) {
    if (what.starts_with("fill") && fills++ % (samples * runs_a_sample * run.places().size()) == 0)
      now += 3;
  });

  run.tuner.tune(uses);

  CHECK(run.tuner.report().requests == 4);
  CHECK(lines == std::vector<std::string>{"autotune: 2 of 4 kinds of steps, 6 s"});
}
