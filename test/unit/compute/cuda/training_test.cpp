// Training steps on a simulated GPU, against the reference and the host's optimizer.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <thread>

#include "allreduce/nccl/nccl_communicator.hpp"
#include "compute/cuda/engines/convolution.hpp"
#include "compute/cuda/kernels/arguments/elementwise.hpp"
#include "compute/cuda/kernels/arguments/optimizer.hpp"
#include "compute/cuda/runtime/batch_block.hpp"
#include "compute/cuda/runtime/runtime.hpp"
#include "ringtrain/allreduce/communicator/gradient_reducer.hpp"
#include "ringtrain/compute/gpu.hpp"
#include "ringtrain/compute/memory_plan.hpp"
#include "ringtrain/model/passes.hpp"
#include "ringtrain/model/zoo.hpp"
#include "ringtrain/optim/optimizer.hpp"
#include "support/catch.hpp"
#include "support/host_gpu/host_gpu.hpp"
#include "support/kernel_case.hpp"
#include "support/random_batch.hpp"

using namespace ringtrain;
using namespace ringtrain::compute;

namespace {

constexpr int images_a_rank = 3;
constexpr double learning_rate = 0.05;
constexpr std::size_t head_results = 16;

model::Graph trained_network() {
  const model::Initialiser initial{model::Initialiser::Kind::normal, 0.3};
  model::GraphBuilder g;
  TensorId x = g.input(8, 8, 3, {Normalisation::standardise_image, {}, {}, true});
  for (const char* name : {"1", "2"}) {
    x = g.convolution(name, x, {.channels = 8, .height = 3, .width = 3, .initial = initial});
    x = g.relu(g.batch_norm(std::string("bn") + name, x, {}));
  }
  x = g.dropout(g.global_pool(x), 0.8f);
  g.loss(g.matrix_product("fc", x, 10, initial, 0.0, true));
  return std::move(g).finish();
}

std::size_t padded(std::size_t count) { return (count + 15) / 16 * 16; }

optim::OptimizerSettings optimizer_settings(const model::Graph& graph) {
  optim::OptimizerSettings o{.momentum = 0.9, .weight_decay = 0.01, .ema = 0.5};
  o.decays = {{graph.parameter_ranges()[0], 1}};
  o.rates = {{graph.parameter_ranges()[0], 0.5}, {graph.parameter_ranges().back(), 2}};
  return o;
}

// Two ranks with the same batch: sums are doubles, and averages halves that are doubled, as NCCL's,
// on a stream of their own.
class Twins final : public allreduce::Communicator {
 public:
  Twins(GpuBackend& backend, std::size_t gradients)
      : allreduce::Communicator({.rank = 0, .size = 2}),
        memory_(backend.memory()),
        compute_(static_cast<cudaStream_t>(backend.stream())),
        halves_(backend, memory_, gradients) {}

  Memory& memory() override { return memory_; }
  void broadcast(View, int) override {}
  void start_allreduce(View values, const allreduce::SumOptions& options) override {
    if (options.wire != Element::fp32) return average(halves_.round(2, values, options.wire));
    cuda::follow(stream_.get(), produced_, compute_);
    cuda::kernels::accumulate(values.size(), values.data(), values.data(), stream_.get());
  }
  // Of the first of two parts, which is this rank's.
  void start_reduce_scatter(View values) override {
    start_allreduce(values.slice(0, values.size() / 2), {});
  }
  void finish() override {
    cuda::follow(compute_, summed_, stream_.get());
    halves_.widen();
  }

 private:
  void average(NarrowView v) {
    cuda::follow(stream_.get(), produced_, compute_);
    cuda::kernels::scale(v.element(), v.element(), 0.5f, v.size(), v.data(), v.data(),
                         stream_.get());
    cuda::kernels::add(v.element(), v.size(), v.data(), v.data(), v.data(),
                       compute::Activation::none, stream_.get());
  }

  Memory& memory_;
  const cudaStream_t compute_;
  allreduce::HalfBuffer halves_;
  const cuda::Stream stream_ = cuda::make_stream();
  const cuda::Event produced_ = cuda::make_event(), summed_ = cuda::make_event();
};

struct Wish {
  Element element = Element::fp32;
  Element gradient_dtype = Element::fp32;  // between twins
  bool graph = true, accumulates = false, twins = false;
  bool norms_together = false;  // BatchNorm over both twins
  bool captured = true;         // sums may be part of a graph
  bool shares = false;          // twins share the optimizer
  float first_loss_scale = 1024;
  std::int32_t interval = 2000;
};

// Everything that trains on the GPU.
struct GpuRig {
  explicit GpuRig(const Wish& wish)
      : graph(trained_network()),
        backend(make_gpu_backend({.element = wish.element})),
        memory(backend->memory()),
        head(head_results + padded(graph.statistic_count())),
        parameters(memory.allocate(graph.parameter_count())),
        others(memory.allocate(graph.parameter_count())),
        sums(memory.allocate(
            head + (wish.shares ? padded(graph.parameter_count()) : graph.parameter_count()))),
        statistics(memory.allocate(graph.statistic_count())),
        averaged_statistics(memory.allocate(graph.statistic_count())),
        batch_statistics(memory.allocate(graph.statistic_count())),
        twins(*backend, graph.parameter_count()),
        reducer(twins, sums, 1, head, {.wire = wish.gradient_dtype},
                {.unit = 16, .scattered = wish.shares}),
        summed_as_twins(wish.twins) {
    std::vector<float> first(graph.parameter_count()), running(graph.statistic_count());
    model::initialise(graph, 1, first, running);
    memory.write(first, parameters);
    memory.write(running, statistics);
    memory.write(running, averaged_statistics);
    const Schedule schedule = this->schedule(wish);
    for (const std::size_t first : finality(schedule))
      if (first > 0) finals.push_back(head + first);
    training = backend->make_training(schedule, buffers(), 5, step_sums(wish), settings(wish));
  }

  Schedule schedule(const Wish& wish) {
    return model::make_schedule(
        graph, images_a_rank, model::Mode::training, 0.1f,
        [this](const Schedule& s, const Step& step) { return backend->supports(s, step); }, true,
        wish.norms_together ? model::BatchNorms::all_ranks : model::BatchNorms::each_rank);
  }
  Buffers buffers() const {
    return {parameters, sums.view().slice(head, graph.parameter_count()), statistics,
            batch_statistics};
  }

  GpuStepSums step_sums(const Wish& wish) {
    if (!summed_as_twins) return {sums, head, [](std::size_t) {}, [] {}, [] {}};
    return {sums,
            head,
            [this](std::size_t first) { reducer.final_from(first); },
            [this] { reducer.finish(); },
            [] {},
            [this](View values) {
              twins.start_allreduce(values, {});
              twins.finish();
            },
            wish.captured,
            {},
            [this](const std::string& why) {
              refusals.push_back(why);
              return why.empty();
            },
            wish.shares ? std::optional(part()) : std::nullopt};
  }
  // Of rank 0. What the other updates is in `others`, before the step.
  GpuPart part() {
    const std::vector<std::uint64_t> bounds = reducer.bounds(finals);
    std::vector<Range> theirs;
    for (std::size_t b = 0; b + 1 < bounds.size(); ++b) {
      const std::size_t first = std::max<std::size_t>(bounds[b], head) - head,
                        half = (bounds[b + 1] - head - first) / 2;
      const auto in = [this](std::size_t at) { return std::min(at, graph.parameter_count()); };
      own.push_back({first, in(first + half) - in(first)});
      theirs.push_back({in(first + half), in(first + 2 * half) - in(first + half)});
    }
    return {own, bounds[1] - head, [this] { twins.finish(); },
            [this, theirs] {
              for (const Range& range : theirs)
                cuda::check(cudaMemcpyAsync(parameters.view().data() + range.first,
                                            others.view().data() + range.first,
                                            range.count * sizeof(float), cudaMemcpyDeviceToDevice,
                                            static_cast<cudaStream_t>(backend->stream())),
                            "cudaMemcpyAsync");
            }};
  }
  GpuTrainingSettings settings(const Wish& wish) const {
    const optim::OptimizerSettings o = optimizer_settings(graph);
    GpuTrainingSettings s;
    s.rule = {o.kind, o.momentum, o.mean_square_decay, o.beta1, o.beta2, o.epsilon, o.ema};
    s.decays = optim::decay_segments(o, graph.parameter_count());
    s.momenta = {{graph.statistic_count(), 0.1f}};
    s.averaged_statistics = averaged_statistics;
    s.accumulates = wish.accumulates;
    s.graph = wish.graph;
    s.first_loss_scale = wish.first_loss_scale;
    s.loss_scale.interval = wish.interval;
    return s;
  }
  // `micro`: batches a step.
  void step(std::int64_t step, int micro = 1) { step_with(step, step, micro); }
  // With the batches that are step `data`'s.
  void step_with(std::int64_t data, std::int64_t step, int micro = 1) {
    const double weight = 1.0 / (images_a_rank * micro * (summed_as_twins ? 2 : 1));
    for (int m = 0; m < micro; ++m)
      training->queue(random_batch(images_a_rank, 8, 8, 3, 10, 100 * data + m),
                      {.first = m == 0,
                       .last = m == micro - 1,
                       .step = step,
                       .learning_rate = learning_rate,
                       .sample_weight = weight,
                       .share = images_a_rank * weight});
    while (const auto outcome = training->outcome(2)) outcomes.push_back(*outcome);
  }
  void finish() {
    while (const auto outcome = training->outcome(0)) outcomes.push_back(*outcome);
  }
  std::vector<float> read(View view) const {
    std::vector<float> values(view.size());
    memory.read(view, values);
    return values;
  }
  // All that training changes.
  std::vector<View> state() const {
    std::vector<View> views{parameters, statistics, training->loss_scale()};
    for (const auto& [name, view] : training->slots()) views.push_back(view);
    views.push_back(averaged_statistics);
    return views;
  }
  std::vector<std::vector<float>> read_state() const {
    std::vector<std::vector<float>> values;
    for (const View& view : state()) values.push_back(read(view));
    return values;
  }

  model::Graph graph;
  std::unique_ptr<GpuBackend> backend;
  Memory& memory;
  std::size_t head;
  Buffer parameters, others, sums, statistics, averaged_statistics, batch_statistics;
  Twins twins;
  allreduce::GradientReducer reducer;
  const bool summed_as_twins;
  std::unique_ptr<GpuTraining> training;
  std::vector<std::size_t> finals;
  std::vector<Range> own;
  std::vector<GpuOutcome> outcomes;
  std::vector<std::string> refusals;  // of captures; empty: it is none
};

struct Expected {
  std::vector<double> loss;
  std::vector<float> parameters, statistics, averaged_statistics, average;
};

// The same steps with the reference backend and the host's optimizer.
Expected train_on_host(int steps, int micro) {
  const model::Graph graph = trained_network();
  HostMemory memory;
  const Buffer parameters = memory.allocate(graph.parameter_count()),
               gradients = memory.allocate(graph.parameter_count()),
               statistics = memory.allocate(graph.statistic_count()),
               averaged_statistics = memory.allocate(graph.statistic_count()),
               batch_statistics = memory.allocate(graph.statistic_count());
  model::initialise(graph, 1, parameters.view().host(), statistics.view().host());
  std::ranges::copy(statistics.view().host(), averaged_statistics.view().data());
  optim::Optimizer optimizer(optimizer_settings(graph), parameters, gradients, memory);
  const auto program = make_reference_backend()->compile(
      model::make_schedule(graph, images_a_rank, model::Mode::training, 0.1f,
                           [](const Schedule&, const Step&) { return false; }),
      {parameters, gradients, statistics, batch_statistics}, 5);
  Expected expected;
  for (int step = 0; step < steps; ++step) {
    std::vector<float> sum(graph.parameter_count()), mean(graph.statistic_count());
    double loss = 0;
    const double weight = 1.0 / (images_a_rank * micro);
    for (int m = 0; m < micro; ++m) {
      loss +=
          weight *
          program->run(random_batch(images_a_rank, 8, 8, 3, 10, 100 * step + m), weight, nullptr)
              .loss;
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += gradients.view().data()[i];
      for (std::size_t i = 0; i < mean.size(); ++i)
        mean[i] += batch_statistics.view().data()[i] / static_cast<float>(micro);
    }
    std::ranges::copy(sum, gradients.view().data());
    optimizer.begin({step, learning_rate, 1});
    optimizer.update({0, sum.size()});
    expected.loss.push_back(loss + optimizer.l2_loss());
    for (std::size_t i = 0; i < mean.size(); ++i)
      statistics.view().data()[i] += 0.1f * (mean[i] - statistics.view().data()[i]);
    optim::move_average(averaged_statistics, statistics, optimizer.average_decay());
  }
  const auto copy = [](View v) { return std::vector<float>(v.host().begin(), v.host().end()); };
  expected.parameters = copy(parameters);
  expected.statistics = copy(statistics);
  expected.averaged_statistics = copy(averaged_statistics);
  expected.average = copy(*optimizer.average());
  return expected;
}

std::vector<std::vector<float>> state_after(int steps, const Wish& wish, int micro = 1) {
  GpuRig rig(wish);
  for (int step = 0; step < steps; ++step) rig.step(step, micro);
  rig.finish();
  return rig.read_state();
}

struct NoCaptures {
  NoCaptures() { host_gpu::refuse_captures(true); }
  ~NoCaptures() { host_gpu::refuse_captures(false); }
};

const std::vector<std::string> no_complaints{};

}  // namespace

TEST_CASE("cuda training: steps are the host's, in outcomes and state") {
  const int micro = GENERATE(1, 3);
  const int steps = 5;
  host_gpu::set_seed(11);
  GpuRig rig({.accumulates = micro > 1});

  for (int step = 0; step < steps; ++step) rig.step(step, micro);
  rig.finish();

  const Expected expected = train_on_host(steps, micro);
  REQUIRE(rig.outcomes.size() == steps);
  for (int step = 0; step < steps; ++step) {
    CHECK(rig.outcomes[step].step == step);
    CHECK(rig.outcomes[step].loss + rig.outcomes[step].l2_loss ==
          Approx(expected.loss[step]).epsilon(1e-4));
    CHECK_FALSE(rig.outcomes[step].skipped);
  }
  CHECK(relative_norm(rig.read(rig.parameters), expected.parameters) < 1e-4);
  CHECK(relative_norm(rig.read(rig.statistics), expected.statistics) < 1e-4);
  CHECK(relative_norm(rig.read(rig.averaged_statistics), expected.averaged_statistics) < 1e-4);
  CHECK(relative_norm(rig.read(rig.training->slots().back().second), expected.average) < 1e-4);
  CHECK(host_gpu::complaints() == no_complaints);
}

TEST_CASE("cuda training: 16-bit steps follow the host's") {
  const auto element = GENERATE(Element::fp16, Element::bf16);
  const int steps = 4;
  host_gpu::set_seed(12);

  const auto state = state_after(steps, {.element = element});

  const Expected expected = train_on_host(steps, 1);
  CHECK(relative_norm(state[0], expected.parameters) < (element == Element::fp16 ? 0.01 : 0.05));
  CHECK(host_gpu::complaints() == no_complaints);
}

TEST_CASE("cuda training: the same bits in whatever order the GPU works, as graphs or not") {
  const auto element = GENERATE(Element::fp32, Element::fp16);
  const int micro = GENERATE(1, 2);
  CAPTURE(name_of(element), micro);
  host_gpu::set_seed(1);
  const Wish wish{.element = element, .accumulates = micro > 1};

  const auto state = state_after(4, wish, micro);

  for (const std::uint64_t seed : {2, 3, 4, 5}) {
    host_gpu::set_seed(seed);
    CHECK(state_after(4, wish, micro) == state);
  }
  Wish one_by_one = wish;
  one_by_one.graph = false;
  CHECK(state_after(4, one_by_one, micro) == state);
  CHECK(host_gpu::complaints() == no_complaints);
}

TEST_CASE("cuda training: sums on another stream are waited for, and wait") {
  const int micro = GENERATE(1, 2);
  for (const std::uint64_t seed : {1, 2, 3, 4}) {
    CAPTURE(micro, seed);
    host_gpu::set_seed(seed);
    GpuRig alone({.accumulates = micro > 1}), twins({.accumulates = micro > 1, .twins = true});

    for (int step = 0; step < 4; ++step) {
      alone.step(step, micro);
      twins.step(step, micro);
    }
    alone.finish();
    twins.finish();

    // Halves that are doubled are exact.
    CHECK(twins.read_state() == alone.read_state());
    CHECK(twins.outcomes.back().loss == Approx(alone.outcomes.back().loss));
    CHECK(host_gpu::complaints() == no_complaints);
  }
}

TEST_CASE("cuda training: twins that share the optimizer come to the bits of one that does not") {
  const auto element = GENERATE(Element::fp32, Element::fp16, Element::bf16);
  const int micro = GENERATE(1, 2);
  const bool captured = GENERATE(true, false);
  const float scale = element == Element::fp16 ? 4194304 : 1;  // so that first steps overflow
  for (const std::uint64_t seed : {1, 2, 3}) {
    CAPTURE(name_of(element), micro, captured, seed);
    host_gpu::set_seed(seed);
    GpuRig alone({.element = element, .accumulates = micro > 1, .first_loss_scale = scale});
    GpuRig shares({.element = element,
                   .accumulates = micro > 1,
                   .twins = true,
                   .captured = captured,
                   .shares = true,
                   .first_loss_scale = 2 * scale});

    for (int step = 0; step < 5; ++step) {
      alone.step(step, micro);
      alone.finish();
      shares.finish();
      shares.memory.write(alone.read(alone.parameters), shares.others);
      shares.step(step, micro);
    }
    shares.finish();

    REQUIRE(shares.own.size() > 2);
    const auto expected = alone.read_state();
    auto state = shares.read_state();
    std::vector<float> momentum;
    for (const Range& r : shares.own)
      momentum.insert(momentum.end(), expected[3].begin() + std::ptrdiff_t(r.first),
                      expected[3].begin() + std::ptrdiff_t(r.end()));
    CHECK(state[3] == momentum);
    state[3] = expected[3];
    if (element == Element::fp16) state[2][0] /= 2;  // as the samples of two ranks are more
    CHECK(state == expected);
    const auto& ours = shares.outcomes;
    REQUIRE(ours.size() == alone.outcomes.size());
    for (std::size_t i = 0; i < ours.size(); ++i)
      CHECK(ours[i].skipped == alone.outcomes[i].skipped);
    CHECK((element != Element::fp16 || ours[0].skipped));
    CHECK(host_gpu::complaints() == no_complaints);
  }
}

TEST_CASE("cuda training: twins that normalise together do what each does alone") {
  const int micro = GENERATE(1, 2);
  CAPTURE(micro);
  host_gpu::set_seed(1);
  const Wish wish{.accumulates = micro > 1, .twins = true, .norms_together = true};
  const auto alone = state_after(4, {.accumulates = micro > 1}, micro);

  const auto twins = state_after(4, wish, micro);

  CHECK(relative_norm(twins[0], alone[0]) < 1e-5);
  CHECK(twins[1][0] == Approx(alone[1][0]).epsilon(1e-5));  // a mean
  // A variance without bias, of twice the pixels. Four steps have moved it from 1.
  const double pixels = images_a_rank * 8 * 8, ratio = (pixels - 1) / (pixels - 0.5);
  const double start = std::pow(0.9, 4);
  CHECK((twins[1][8] - start) / (alone[1][8] - start) == Approx(ratio).epsilon(1e-4));
  for (const std::uint64_t seed : {2, 3, 4, 5}) {
    host_gpu::set_seed(seed);
    CHECK(state_after(4, wish, micro) == twins);
  }
  Wish one_by_one = wish;
  one_by_one.graph = false;
  CHECK(state_after(4, one_by_one, micro) == twins);
  CHECK(host_gpu::complaints() == no_complaints);
}

TEST_CASE("cuda training: sums between graphs come to the same bits as sums in one") {
  const int micro = GENERATE(1, 2);
  const bool norms_together = GENERATE(false, true);
  CAPTURE(micro, norms_together);
  host_gpu::set_seed(1);
  Wish wish{.accumulates = micro > 1, .twins = true, .norms_together = norms_together};
  const auto state = state_after(4, wish, micro);
  wish.captured = false;

  for (const std::uint64_t seed : {1, 2, 3, 4}) {
    host_gpu::set_seed(seed);
    CHECK(state_after(4, wish, micro) == state);
    CHECK(host_gpu::complaints() == no_complaints);
  }
}

TEST_CASE("cuda training: with sums between them, a step is several graphs", "[simulated]") {
  for (const bool captured : {true, false}) {
    host_gpu::set_seed(1);
    GpuRig rig({.twins = true, .captured = captured});
    for (int step = 0; step < 4; ++step) rig.step(step);
    rig.finish();

    CHECK(rig.refusals == std::vector<std::string>{""});
    const std::size_t graphs = host_gpu::counts().graphs;
    CHECK((captured ? graphs == 3 : graphs > 2 * 3));  // the first step is none
  }
}

TEST_CASE("cuda training: steps that cannot be captured are launched kernel by kernel",
          "[simulated]") {
  const bool captured = GENERATE(true, false);
  const int micro = GENERATE(1, 2);
  CAPTURE(captured, micro);
  host_gpu::set_seed(1);
  const Wish wish{.accumulates = micro > 1, .twins = true, .captured = captured};
  const auto state = state_after(4, wish, micro);

  host_gpu::set_seed(2);
  const NoCaptures no_captures;
  GpuRig rig(wish);
  for (int step = 0; step < 4; ++step) rig.step(step, micro);
  rig.finish();

  CHECK(rig.read_state() == state);
  CHECK(host_gpu::counts().graphs == 0);
  REQUIRE(rig.refusals.size() == 1);
  CHECK_THAT(rig.refusals[0], Catch::Contains("cudaErrorStreamCaptureInvalidated"));
  CHECK(host_gpu::complaints() == no_complaints);
}

TEST_CASE("cuda training: gradients that travel in 16 bits are the fp32 ones, rounded") {
  const auto element = GENERATE(Element::fp16, Element::bf16);
  const int micro = GENERATE(1, 2);
  CAPTURE(name_of(element), micro);
  host_gpu::set_seed(1);
  const auto exact = state_after(1, {.accumulates = micro > 1}, micro);

  const auto rounded =
      state_after(1, {.gradient_dtype = element, .accumulates = micro > 1, .twins = true}, micro);

  const double rounding = relative_norm(rounded[3], exact[3]);  // of momentum, the gradients
  CHECK(rounding < (element == Element::fp16 ? 5e-4 : 4e-3));
  CHECK(rounding > 1e-5);
  CHECK(rounded[1] == exact[1]);  // statistics travel in fp32
  CHECK(host_gpu::complaints() == no_complaints);
}

TEST_CASE("cuda training: gradients in 16 bits are waited for, and wait") {
  const auto [element, micro] =
      GENERATE(table<Element, int>({{Element::fp16, 1}, {Element::bf16, 2}}));
  CAPTURE(name_of(element), micro);
  host_gpu::set_seed(1);
  Wish wish{.gradient_dtype = element, .accumulates = micro > 1, .twins = true};
  const auto exact = state_after(4, {.accumulates = micro > 1}, micro);

  const auto state = state_after(4, wish, micro);

  CHECK(relative_norm(state[0], exact[0]) < (element == Element::fp16 ? 1e-3 : 1e-2));
  for (const std::uint64_t seed : {2, 3, 4, 5}) {
    host_gpu::set_seed(seed);
    wish.graph = seed != 5;
    CHECK(state_after(4, wish, micro) == state);
    CHECK(host_gpu::complaints() == no_complaints);
  }
}

TEST_CASE("cuda training: gradients that overflow on their way lower the loss scale") {
  const auto gradient_dtype = GENERATE(Element::fp32, Element::fp16);
  CAPTURE(name_of(gradient_dtype));
  const bool overflows = gradient_dtype == Element::fp16;
  host_gpu::set_seed(4);
  const float scale = 350000;  // one rank's gradients are finite in fp16, and two ranks' are not
  GpuRig rig({.element = Element::fp16,
              .gradient_dtype = gradient_dtype,
              .twins = true,
              .first_loss_scale = scale});
  const auto before = rig.read_state();

  rig.step(0);
  rig.finish();

  CHECK(rig.outcomes[0].skipped == overflows);
  CHECK(rig.outcomes[0].loss_scale == (overflows ? scale / 2 : scale));
  CHECK((rig.read_state()[0] == before[0]) == overflows);
  CHECK(std::isfinite(rig.outcomes[0].loss));
}

TEST_CASE("cuda training: a step whose gradients overflow updates nothing and halves the scale") {
  host_gpu::set_seed(4);
  GpuRig rig({.element = Element::fp16, .first_loss_scale = 1e30f});
  const auto before = rig.read_state();

  rig.step(0);
  rig.finish();

  const auto after = rig.read_state();
  CHECK(rig.outcomes[0].skipped);
  CHECK_FALSE(rig.outcomes[0].not_finite);
  CHECK(std::isfinite(rig.outcomes[0].loss));
  CHECK(after[0] == before[0]);
  CHECK(after[1] == before[1]);
  CHECK(after[2][0] == 16777216);  // halved, and no more than the most
  CHECK(after[3] == before[3]);
}

TEST_CASE("cuda training: the scale grows after an interval of good steps") {
  host_gpu::set_seed(4);
  GpuRig rig({.element = Element::fp16, .first_loss_scale = 256, .interval = 2});

  for (int step = 0; step < 3; ++step) rig.step(step);
  rig.finish();

  CHECK(rig.outcomes[0].loss_scale == 256);
  CHECK(rig.outcomes[1].loss_scale == 512);
  CHECK(rig.read(rig.training->loss_scale()) == std::vector<float>{512, 1, 0});
}

TEST_CASE("cuda training: a loss that is no number is told") {
  host_gpu::set_seed(4);
  GpuRig rig({});
  std::vector<float> values = rig.read(rig.parameters);
  values[3] = std::numeric_limits<float>::quiet_NaN();
  rig.memory.write(values, rig.parameters);
  rig.training->refresh();
  const auto statistics = rig.read(rig.statistics);

  rig.step(0);
  rig.finish();

  CHECK(rig.outcomes[0].not_finite);
  CHECK(rig.read(rig.statistics) == statistics);
}

TEST_CASE(
    "cuda training: a step that was skipped is none for the average's warm-up, in graphs, too") {
  const auto element = GENERATE(Element::fp32, Element::fp16);
  CAPTURE(name_of(element));
  host_gpu::set_seed(4);
  GpuRig straight({.element = element}), skipping({.element = element});
  for (int step = 0; step < 5; ++step) straight.step(step);
  straight.finish();

  for (int step = 0; step < 3; ++step) skipping.step(step);
  skipping.finish();
  const auto good = skipping.read(skipping.parameters);
  std::vector<float> bad = good;
  bad.back() = std::numeric_limits<float>::quiet_NaN();
  skipping.memory.write(bad, skipping.parameters);
  skipping.training->refresh();
  skipping.step_with(3, 3);
  skipping.finish();
  CHECK(skipping.outcomes.back().skipped);
  skipping.memory.write(good, skipping.parameters);
  skipping.training->refresh();
  for (int step = 3; step < 5; ++step) skipping.step_with(step, step + 1);
  skipping.finish();

  CHECK(skipping.read(skipping.training->loss_scale())[2] == 1);
  auto expected = straight.read_state(), state = skipping.read_state();
  if (element == Element::fp32) {  // fp16 goes on with half the loss scale, and so other roundings
    expected.erase(expected.begin() + 2);
    state.erase(state.begin() + 2);
    CHECK(state == expected);
  }
}

TEST_CASE("cuda training: state that is saved and restored goes on with the same bits") {
  const Wish wish{.element = Element::fp16, .interval = 2};
  host_gpu::set_seed(6);
  const auto straight = state_after(6, wish);
  GpuRig first(wish);
  for (int step = 0; step < 3; ++step) first.step(step);
  first.finish();
  const auto saved = first.read_state();

  GpuRig second(wish);
  const auto views = second.state();
  for (std::size_t i = 0; i < views.size(); ++i) second.memory.write(saved[i], views[i]);
  second.training->refresh();
  for (int step = 3; step < 6; ++step) second.step(step);
  second.finish();

  CHECK(second.read_state() == straight);
}

TEST_CASE("cuda training: a snapshot is of its step, while training goes on") {
  for (const std::uint64_t seed : {1, 2, 3, 4, 5, 6}) {
    CAPTURE(seed);
    host_gpu::set_seed(seed);
    const auto expected = state_after(3, {});
    GpuRig rig({});
    const auto snapshot = rig.backend->make_snapshot(rig.state());
    std::vector<std::vector<float>> targets;
    for (const View& view : rig.state()) targets.emplace_back(view.size());
    const std::vector<std::span<float>> spans(targets.begin(), targets.end());

    for (int step = 0; step < 3; ++step) rig.step(step);
    CHECK(snapshot->done());
    snapshot->start(spans);
    for (int step = 3; step < 8; ++step) rig.step(step);
    rig.finish();
    while (!snapshot->done()) {
    }

    CHECK(targets == expected);
    CHECK(host_gpu::complaints() == no_complaints);
  }
}

TEST_CASE("cuda training: what was pinned before training is pinned once", "[simulated]") {
  GpuRig rig({});
  const auto snapshot = rig.backend->make_snapshot(rig.state());
  std::vector<std::vector<float>> targets;
  for (const View& view : rig.state()) targets.emplace_back(view.size());
  const std::vector<std::span<float>> spans(targets.begin(), targets.end());

  snapshot->pin(spans);
  const std::size_t before = host_gpu::counts().pins;
  rig.step(0);
  rig.finish();
  snapshot->start(spans);
  while (!snapshot->done()) {
  }

  CHECK(before > 0);
  CHECK(host_gpu::counts().pins == before);
  snapshot->release();
}

TEST_CASE("cuda training: a snapshot that starts over one under way is of its own step") {
  for (const std::uint64_t seed : {1, 2, 3, 4, 5, 6}) {
    CAPTURE(seed);
    host_gpu::set_seed(seed);
    const auto expected = state_after(3, {});
    GpuRig rig({});
    const auto snapshot = rig.backend->make_snapshot(rig.state());
    std::vector<std::vector<float>> targets;
    for (const View& view : rig.state()) targets.emplace_back(view.size());
    const std::vector<std::span<float>> spans(targets.begin(), targets.end());
    snapshot->pin(spans);
    rig.step(0);
    rig.step(1);

    const std::size_t waits = host_gpu::counts().host_waits;
    snapshot->start(spans);
    rig.step(2);
    snapshot->start(spans);
    CHECK(host_gpu::counts().host_waits == waits);
    for (int step = 3; step < 6; ++step) rig.step(step);
    rig.finish();
    while (!snapshot->done()) {
    }

    CHECK(targets == expected);
    CHECK(host_gpu::complaints() == no_complaints);
  }
}

TEST_CASE("cuda training: parts of pinned memory are not pinned again", "[simulated]") {
  GpuRig rig({});
  const auto snapshot = rig.backend->make_snapshot(rig.state());
  std::size_t size = 0, place = 0;
  for (const View& view : rig.state()) size += view.size();
  std::vector<float> slice(size);
  std::vector<std::span<float>> parts;
  for (const View& view : rig.state()) {
    parts.push_back(std::span(slice).subspan(place, view.size()));
    place += view.size();
  }
  const std::size_t before = host_gpu::counts().pins;

  const std::span<float> whole(slice);
  snapshot->pin({&whole, 1});
  snapshot->start(parts);
  snapshot->release();

  CHECK(host_gpu::counts().pins == before + 1);
}

TEST_CASE("cuda training: a thread that asks for a snapshot's end chooses its GPU", "[simulated]") {
  ::setenv("SIMULATED_GPUS", "2", 1);
  host_gpu::set_seed(1);
  GpuRig rig({});
  const auto snapshot = rig.backend->make_snapshot(rig.state());
  int device = -1;

  std::thread([&] {
    cudaSetDevice(1);
    static_cast<void>(snapshot->done());
    cudaGetDevice(&device);
  }).join();
  ::unsetenv("SIMULATED_GPUS");

  CHECK(device == 0);
  CHECK(host_gpu::complaints() == no_complaints);
}

TEST_CASE("cuda training: the weight gradients of a bucket are widened in one launch",
          "[simulated]") {
  const auto element = GENERATE(Element::fp16, Element::bf16);
  const std::size_t buckets = GENERATE(1, 2, 0);  // 0: sums may start anywhere
  const bool accumulates = GENERATE(false, true);
  CAPTURE(element, buckets, accumulates);
  host_gpu::set_seed(5);
  const Wish wish{.element = element, .accumulates = accumulates, .twins = true};
  GpuRig rig(wish);
  // Of the last layer, whose gradients are final first.
  std::size_t last_layer = rig.graph.parameter_count();
  for (const std::size_t first : finality(rig.schedule(wish)))
    if (last_layer == rig.graph.parameter_count()) last_layer = first;
  GpuStepSums sums = rig.step_sums(wish);
  if (buckets == 1) sums.starts = {rig.head};
  if (buckets == 2) sums.starts = {rig.head + last_layer, rig.head};
  std::vector<std::size_t> told;
  sums.final_from = [&, tell = sums.final_from](std::size_t place) {
    told.push_back(place - rig.head);
    tell(place);
  };
  rig.training =
      rig.backend->make_training(rig.schedule(wish), rig.buffers(), 5, sums, rig.settings(wish));
  std::size_t launches = 0;
  host_gpu::set_observer([&](const std::string& what) {
    launches += what.find("WidenGradients") != std::string::npos;
  });

  const int micro = accumulates ? 2 : 1;
  rig.step(0, micro);
  rig.finish();
  const std::size_t as_kernels = launches;
  const std::vector<std::size_t> told_once = std::exchange(told, {});
  launches = 0;
  rig.step(1, micro);
  rig.step(2, micro);
  rig.finish();
  host_gpu::set_observer({});

  CHECK(launches == 2 * as_kernels);
  if (buckets > 0) CHECK(as_kernels == std::size_t(micro) * buckets);
  // A convolution and a matrix product: the gradient of the first layer is stored otherwise.
  if (buckets == 0) CHECK(as_kernels == std::size_t(micro) * 2);
  if (buckets == 2) CHECK(told_once == std::vector{last_layer});
  if (buckets == 1) CHECK(told_once.empty());
  rig.finish();

  const auto in_buckets = rig.read_state();
  GpuRig plain(wish);
  for (int step = 0; step < 3; ++step) plain.step(step, micro);
  plain.finish();
  CHECK(in_buckets == plain.read_state());
  CHECK(host_gpu::complaints() == no_complaints);
}

TEST_CASE("cuda training: a batch's copies are timed on their own stream", "[simulated]") {
  constexpr int micro = 2, steps = 4, copy_us = 5000;
  const std::string copy =
      "copy " + std::to_string(cuda::BatchBlock(images_a_rank, 8 * 8 * 3).bytes());
  const bool is_slow = GENERATE(true, false);
  host_gpu::set_seed(4);
  GpuRig rig({.accumulates = true});
  std::size_t copies = 0;
  host_gpu::set_observer([&](const std::string& what) {
    if (what != copy) return;
    ++copies;
    if (is_slow) host_gpu::take(copy_us);
  });

  for (int step = 0; step < steps; ++step) rig.step(step, micro);
  rig.finish();
  host_gpu::set_observer({});

  CHECK(copies == micro * steps);
  REQUIRE(rig.outcomes.size() == steps);
  for (const GpuOutcome& outcome : rig.outcomes) {
    CHECK(outcome.copy_s > 0);
    CHECK(outcome.staged_s > 0);
    // What other streams do meanwhile takes a microsecond each.
    CHECK(outcome.copy_s >= (is_slow ? micro * copy_us * 1e-6 : 0));
    CHECK(outcome.copy_s < (is_slow ? micro + 1 : 1) * copy_us * 1e-6);
  }
}

TEST_CASE("cuda training: a second training takes no memory for activations", "[simulated]") {
  GpuRig rig({.element = Element::fp16});
  const Schedule schedule = rig.schedule({});
  const auto live = [] { return host_gpu::counts().live_bytes; };
  const auto make = [&] {
    return rig.backend->make_training(schedule, rig.buffers(), 5, rig.step_sums({}),
                                      rig.settings({}));
  };
  const auto sizes = cuda::stored_bytes(schedule, Element::fp16);
  const std::size_t activations = plan_memory(schedule, sizes).bytes;

  rig.training.reset();
  const std::size_t before = live();
  const auto first = make();
  const std::size_t first_took = live() - before;
  const auto second = make();

  CHECK(live() - before - first_took == first_took - activations);
}

TEST_CASE("cuda training: evaluation and a second training leave its steps as they are") {
  for (const std::uint64_t seed : {1, 2, 3}) {
    CAPTURE(seed);
    host_gpu::set_seed(seed);
    const auto alone = state_after(4, {});
    const auto evaluate = [](GpuRig& rig) {
      const auto schedule = model::make_schedule(
          rig.graph, images_a_rank, model::Mode::evaluation, 0.1f,
          [&](const Schedule& s, const Step& step) { return rig.backend->supports(s, step); });
      return rig.backend->compile(
          schedule, {rig.parameters, View(), rig.statistics, rig.batch_statistics}, 5);
    };
    GpuRig lone({});
    const Batch batch = random_batch(images_a_rank, 8, 8, 3, 10, 7);
    const double expected_loss = evaluate(lone)->run(batch, 1, nullptr).loss;

    GpuRig rig({});
    const auto evaluation = evaluate(rig);
    const auto other = rig.backend->make_training(rig.schedule({}), rig.buffers(), 5,
                                                  rig.step_sums({}), rig.settings({}));
    CHECK(evaluation->run(batch, 1, nullptr).loss == expected_loss);
    for (int step = 0; step < 4; ++step) {
      rig.step(step);
      if (step % 2 == 1) rig.finish();  // the others come behind steps that are over or under way
      evaluation->run(batch, 1, nullptr);
      const auto before = rig.read_state();  // as --baseline does, beside this training
      other->queue(batch, {.step = 0,
                           .learning_rate = learning_rate,
                           .sample_weight = 1. / images_a_rank,
                           .share = 1});
      other->outcome(0);
      for (std::size_t i = 0; i < before.size(); ++i) rig.memory.write(before[i], rig.state()[i]);
    }
    rig.finish();

    CHECK(rig.read_state() == alone);
    CHECK(host_gpu::complaints() == no_complaints);
  }
}

TEST_CASE("cuda training: a step allocates nothing and waits for no work of its own",
          "[simulated]") {
  const auto gradient_dtype = GENERATE(Element::fp32, Element::bf16);
  host_gpu::set_seed(9);
  GpuRig rig({.element = Element::fp16, .gradient_dtype = gradient_dtype, .twins = true});
  for (int step = 0; step < 4; ++step) rig.step(step);
  const host_gpu::Counts before = host_gpu::counts();

  for (int step = 4; step < 14; ++step) rig.step(step);

  const host_gpu::Counts after = host_gpu::counts();
  CHECK(after.allocations == before.allocations);
  CHECK(after.host_waits == before.host_waits);
  CHECK(after.graphs == before.graphs + 10);
  CHECK(after.kernels <= before.kernels + 2 * 10);  // the input, outside of the graph
  CHECK(after.engines == before.engines);
  rig.finish();
}
