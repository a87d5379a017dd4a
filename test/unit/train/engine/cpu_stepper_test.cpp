#include "train/engine/cpu_stepper.hpp"

#include <fmt/core.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstring>
#include <limits>
#include <thread>
#include <utility>

#include "ringtrain/allreduce/communicator/compression.hpp"
#include "ringtrain/model/passes.hpp"
#include "ringtrain/model/zoo.hpp"
#include "support/catch.hpp"

using namespace ringtrain;
using namespace ringtrain::train;
using namespace std::chrono_literals;

namespace {

// A small convolutional network with BatchNorm, dropout and colour jitter.
model::Graph small_convnet() {
  model::GraphBuilder g;
  const model::Initialiser initial{model::Initialiser::Kind::normal, 0.2};
  compute::TensorId x = g.input(8, 8, 3, {compute::Normalisation::standardise_image, {}, {}, true});
  x = g.convolution("conv", x, {.channels = 4, .height = 3, .width = 3, .initial = initial});
  x = g.relu(g.batch_norm("bn", x, {}));
  x = g.dropout(g.global_pool(x), 0.8f);
  g.loss(g.matrix_product("fc", x, 10, initial, 0.0, true));
  return std::move(g).finish();
}

struct Alone final : allreduce::Communicator, allreduce::CompressionState {
  Alone() : allreduce::Communicator({}) {}
  Memory& memory() override { return host; }
  void broadcast(View, int) override {}
  void start_allreduce(View, const allreduce::SumOptions&) override {}
  void finish() override {}
  allreduce::CompressionState* compression_state() override { return this; }
  void accept() override { ++accepted; }
  void scale(float) override {}
  std::size_t size() const override { return 0; }
  void read(std::span<float>, float) const override {}
  void write(std::span<const float>) override {}

  HostMemory host;
  int accepted = 0;
};

// One rank's training on the reference backend, sized by micro-batch and number of micro-steps.
struct HostTraining {
  HostTraining(int micro_batch, int accumulate, const optim::OptimizerSettings& settings = {},
               bool leaves_out = false)
      : graph(small_convnet()),
        data(io::open_dataset("synthetic", io::Split::training, {.extent = {8, 8}, .classes = 10})),
        buffers(graph, settings.ema > 0, memory, memory),
        reducer(communicator, buffers.sums.all(), 64) {
    model::initialise(graph, 1, buffers.parameters.host(), buffers.statistics.view().host());
    optimizer.emplace(settings, buffers.parameters, buffers.sums.gradients(), memory);
    const auto backend = compute::make_reference_backend();
    program = backend->compile(
        model::make_schedule(graph, micro_batch, model::Mode::training, 0.1f,
                             [](const compute::Schedule&, const compute::Step&) { return true; }),
        buffers, 5);
    trainer.emplace(
        CpuStepper::Parts{*program, buffers, momenta_of(graph), reducer, *optimizer, progress,
                          last_step},
        StepSettings{accumulate, micro_batch, micro_batch, data->size(), {.peak = 0.1}, leaves_out},
        Position{});
    io::LoaderOptions options;
    options.global_batch = micro_batch;
    options.share = {0, micro_batch};
    options.augmentation = {.output = {8, 8},
                            .operations = {io::RandomColorJitter{.brightness = {-9, 9}}}};
    loader.emplace(*data, options);
  }
  std::vector<float> values() const {
    const auto host = buffers.parameters.host();
    return {host.begin(), host.end()};
  }

  HostMemory memory;
  model::Graph graph;
  std::unique_ptr<io::Dataset> data;
  Alone communicator;
  TrainingBuffers buffers;
  allreduce::GradientReducer reducer;
  std::optional<optim::Optimizer> optimizer;
  std::unique_ptr<compute::Program> program;
  monitor::Progress progress;
  LastStep last_step;
  std::optional<CpuStepper> trainer;
  std::optional<io::Loader> loader;
};

}  // namespace

TEST_CASE("Trainer: a step moves the parameters against the gradient and counts") {
  HostTraining rig(4, 1, {.kind = optim::OptimizerKind::sgd});
  const auto before = rig.values();

  const StepOutcome outcome = rig.trainer->step(*rig.loader, {})->outcome;

  CHECK(outcome.loss > 0);
  CHECK(rig.communicator.accepted == 1);
  CHECK_FALSE(outcome.stop);
  CHECK(rig.trainer->position().step == 1);
  CHECK(rig.trainer->position().samples == 4);
  const auto after = rig.values();
  for (std::size_t i = 0; i < before.size(); ++i)
    REQUIRE(after[i] ==
            Approx(before[i] - 0.1f * rig.buffers.sums.gradients().data()[i]).margin(1e-6));
}

TEST_CASE("Trainer: a step's seconds are those that the timeline shows, also its wait for data") {
  HostTraining rig(4, 2, {.kind = optim::OptimizerKind::sgd});
  metrics::Timeline timeline(64);
  rig.progress.record_in(&timeline);
  io::LoaderOptions slow;
  slow.global_batch = 4;
  slow.share = {0, 4};
  slow.augmentation.output = {8, 8};
  slow.threads = slow.slots = 1;
  slow.on_batch = [](int, const TimeSpan&) { std::this_thread::sleep_for(50ms); };  // then the next
  io::Loader loader(*rig.data, slow);

  const metrics::PhaseSeconds seconds = rig.trainer->step(loader, {})->seconds;

  CHECK(seconds[metrics::Phase::data_wait] > 0.015);
  metrics::PhaseSeconds shown;
  std::array<int, metrics::watched_phases> spans{};
  for (const metrics::Timeline::Span& span : timeline.spans()) {
    CHECK(span.number == 1);
    shown[span.phase] += 1e-9 * double(span.end_ns - span.begin_ns);
    ++spans.at(static_cast<std::size_t>(span.phase));
  }
  for (const auto& [phase, times] : {std::pair(metrics::Phase::data_wait, 2),
                                     {metrics::Phase::forward, 2},
                                     {metrics::Phase::backward, 2},
                                     {metrics::Phase::communication, 1},
                                     {metrics::Phase::update, 1}}) {
    CAPTURE(metrics::phase_names(phase).timeline);
    CHECK(spans.at(static_cast<std::size_t>(phase)) == times);
    CHECK(shown[phase] == Approx(seconds[phase]).margin(1e-3));
  }
}

TEST_CASE("Trainer: the state that another thread reads amid a step is that of the last one") {
  HostTraining rig(4, 1, {.ema = 0.5});
  constexpr std::uint64_t steps = 60;
  std::vector<std::vector<float>> after = {rig.values()};
  std::vector<std::pair<std::uint64_t, std::vector<float>>> seen;
  std::atomic<bool> over = false;
  std::thread reader([&] {
    while (!over) {
      const std::lock_guard held(rig.last_step.mutex);
      if (seen.empty() || seen.back().first != rig.last_step.position.step || seen.size() < 1000)
        seen.emplace_back(rig.last_step.position.step, rig.values());
    }
  });
  for (std::uint64_t step = 1; step <= steps; ++step) {
    rig.trainer->step(*rig.loader, {});
    after.push_back(rig.values());
  }
  over = true;
  reader.join();

  REQUIRE_FALSE(seen.empty());
  for (const auto& [step, values] : seen) REQUIRE(values == after.at(step));
}

TEST_CASE("Trainer: a step that is left out leaves the state that of the step before") {
  HostTraining rig(4, 1);
  rig.trainer->step(*rig.loader, {});
  rig.buffers.parameters.host()[0] = std::numeric_limits<float>::quiet_NaN();

  REQUIRE(rig.trainer->step(*rig.loader, {})->outcome.not_finite);
  CHECK(rig.trainer->position().step == 2);
  CHECK(rig.last_step.position.step == 1);
}

TEST_CASE("Trainer: a step that is left out is counted with the state, where training goes on") {
  HostTraining rig(4, 1, {.kind = optim::OptimizerKind::adam, .ema = 0.5}, true);
  rig.trainer->step(*rig.loader, {});
  float& parameter = rig.buffers.parameters.host()[0];
  const float before = std::exchange(parameter, std::numeric_limits<float>::quiet_NaN());

  REQUIRE(rig.trainer->step(*rig.loader, {})->outcome.not_finite);
  CHECK(rig.last_step.position.step == 2);
  CHECK(*rig.optimizer->skipped().data() == 1);
  parameter = before;
  CHECK_FALSE(rig.trainer->step(*rig.loader, {})->outcome.not_finite);
  CHECK(rig.optimizer->average_decay() == compute::AverageTiming{}.decay(0.5, 1.0));
  CHECK(rig.trainer->position().step == 3);
}

TEST_CASE("Trainer: running statistics move towards the batch's by the momentum") {
  HostTraining rig(4, 1);

  rig.trainer->step(*rig.loader, {});

  const float* running = rig.buffers.statistics.view().data();
  const float* batch = rig.buffers.batch_statistics.view().data();
  CHECK(running[0] == Approx(0.1 * batch[0]));
  CHECK(running[4] == Approx(0.9 + 0.1 * batch[4]));
}

TEST_CASE("Trainer: the moving average covers running statistics") {
  HostTraining rig(4, 1, {.ema = 0.5});
  float* averaged = rig.buffers.averaged_statistics.view().data();
  const float* running = rig.buffers.statistics.view().data();

  rig.trainer->step(*rig.loader, {});  // keeps 1/10 of the average
  const float first = averaged[4];
  const float expected = 0.9f * running[4];
  rig.trainer->step(*rig.loader, {});  // keeps 2/11

  CHECK(first == Approx(expected));
  CHECK(averaged[4] == Approx(first + 9. / 11 * (running[4] - first)));
}

TEST_CASE("Trainer: micro-steps sum to the mean gradient, loss and statistics of their batches") {
  const int count = GENERATE(2, 3);
  HostTraining all(3, count, {.kind = optim::OptimizerKind::sgd});
  HostTraining one(3, 1, {.kind = optim::OptimizerKind::sgd});
  for (int step = 0; step < 2; ++step) {
    const auto start = all.values();

    const StepOutcome together = all.trainer->step(*all.loader, {})->outcome;

    // The same batches one by one, from the same parameters.
    std::vector<double> mean(start.size());
    double loss = 0, statistic = 0;
    for (int batch = 0; batch < count; ++batch) {
      std::ranges::copy(start, one.buffers.parameters.data());
      loss += one.trainer->step(*one.loader, {})->outcome.loss / count;
      statistic += double(one.buffers.batch_statistics.view().data()[1]) / count;
      for (std::size_t i = 0; i < mean.size(); ++i)
        mean[i] += double(one.buffers.sums.gradients().data()[i]) / count;
    }
    CHECK(together.loss == Approx(loss).epsilon(1e-5));
    CHECK(all.buffers.sums.statistics().data()[1] == Approx(statistic).epsilon(1e-5));
    for (std::size_t i = 0; i < mean.size(); ++i)
      REQUIRE(all.buffers.sums.gradients().data()[i] == Approx(mean[i]).epsilon(1e-4).margin(1e-6));
  }
}

TEST_CASE("Trainer: a step that is not finite updates nothing but goes on counting") {
  HostTraining rig(4, 1);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  if (GENERATE(false, true))
    rig.buffers.parameters.data()[7] = nan;
  else
    rig.buffers.parameters.host().back() = -nan;  // of a logit
  const auto before = rig.values();

  const StepOutcome outcome = rig.trainer->step(*rig.loader, {})->outcome;

  CHECK(outcome.not_finite);
  CHECK(fmt::format("{}", outcome.loss) == "nan");
  CHECK(rig.communicator.accepted == 0);
  CHECK(rig.trainer->position().step == 1);
  const auto after = rig.values();
  CHECK(std::memcmp(before.data(), after.data(), before.size() * sizeof(float)) == 0);
  CHECK(rig.buffers.statistics.view().data()[4] == 1.0f);
}

TEST_CASE("Trainer: a step whose statistics are not finite is left out, averages, too") {
  HostTraining rig(4, 1, {.kind = optim::OptimizerKind::adam, .ema = 0.5}, true);
  rig.trainer->step(*rig.loader, {});
  const auto conv = rig.graph.parameter_ranges()[0];
  for (float& weight : rig.buffers.parameters.slice(conv).host()) weight *= 1e25f;
  const auto values = [](View view) { return std::vector(view.host().begin(), view.host().end()); };
  const auto all = [&] {
    std::vector<std::vector<float>> state = {rig.values(), values(rig.buffers.statistics),
                                             values(rig.buffers.averaged_statistics)};
    for (const auto& slot : rig.optimizer->slots()) state.push_back(values(slot.values));
    return state;
  };
  const auto before = all();

  const StepOutcome outcome = rig.trainer->step(*rig.loader, {})->outcome;

  CHECK(outcome.not_finite);
  CHECK(std::isfinite(outcome.loss));
  CHECK_FALSE(optim::first_non_finite(rig.buffers.sums.gradients()).has_value());
  CHECK(optim::first_non_finite(rig.buffers.sums.statistics()).has_value());
  CHECK(all() == before);
  CHECK(*rig.optimizer->skipped().data() == 1);
}

TEST_CASE("Trainer: a step whose update would not be finite is left out, where steps are") {
  const bool leaves_out = GENERATE(false, true);
  HostTraining rig(4, 1, {}, leaves_out);
  float& momentum = rig.optimizer->slots()[0].values.host()[7];
  momentum = std::numeric_limits<float>::infinity();
  const auto before = rig.values();

  CHECK(rig.trainer->step(*rig.loader, {})->outcome.not_finite == leaves_out);
  CHECK((rig.values() == before) == leaves_out);
}

TEST_CASE("Trainer: a wish comes back with the sums") {
  HostTraining rig(4, 1);

  const StepOutcome asked = rig.trainer->step(*rig.loader, {true, 15})->outcome;
  CHECK(asked.stop);
  CHECK(asked.signal == 15);
  const StepOutcome save = rig.trainer->step(*rig.loader, {false, SIGUSR1})->outcome;
  CHECK_FALSE(save.stop);
  CHECK(save.signal == SIGUSR1);
  CHECK_FALSE(save.unreadable);
  CHECK(rig.trainer->step(*rig.loader, {.unreadable = true})->outcome.unreadable);
  CHECK_FALSE(rig.trainer->step(*rig.loader, {})->outcome.stop);
}
