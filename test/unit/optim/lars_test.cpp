// lars against algorithm 1 of You, Gitman and Ginsburg (2017), in double precision.
#include <omp.h>

#include <cmath>

#include "ringtrain/base/philox.hpp"
#include "ringtrain/optim/optimizer.hpp"
#include "support/catch.hpp"
#include "unit/optim/optimizer_inputs.hpp"

using namespace ringtrain;
using namespace ringtrain::optim;

namespace {

using Doubles = std::vector<double>;

constexpr double lars_lr = 2, trust = 0.05;
constexpr std::size_t size = 90'001;
// Of several chunks; of one parameter; without decay; all zero at first; of zero gradient.
const std::vector<WeightDecay> tensors = {{{3, 70'000}, 1},
                                          {{70'003, 1}, 1},
                                          {{70'010, 5000}, 0},
                                          {{80'000, 4097}, 1},
                                          {{85'000, 5001}, 1}};

// Of two tensors, and of some parameters of none.
const std::vector<RateFactor> tensor_rates = {
    {tensors[0].range, 0.5}, {{70'005, 2}, 3}, {tensors[3].range, 0.25}};

bool contains(Range range, std::size_t i) { return i >= range.first && i < range.end(); }

float start_of(std::size_t i) {
  if (contains(tensors[3].range, i)) return 0;
  return Philox(5, Purpose::initialise, 0, i).uniform(-1, 1);
}

float lars_gradient(std::size_t i, int step) {
  if (contains(tensors[4].range, i)) return 0;
  return gradient_of(i, step);
}

double norm(const Doubles& values, Range range) {
  double squares = 0;
  for (std::size_t i = range.first; i < range.end(); ++i) squares += values[i] * values[i];
  return std::sqrt(squares);
}

/// One step of the published algorithm; what is in no tensor moves as with a ratio of 1.
void step_oracle(Doubles& w, Doubles& v, const Doubles& g) {
  Doubles ratio(w.size(), 1), factor(w.size(), 1), wd(w.size(), 0);
  for (const RateFactor& rate : tensor_rates)
    for (std::size_t i = rate.range.first; i < rate.range.end(); ++i) factor[i] = rate.factor;
  for (const WeightDecay& t : tensors) {
    const double w_norm = norm(w, t.range), g_norm = norm(g, t.range), d = weight_decay * t.factor;
    for (std::size_t i = t.range.first; i < t.range.end(); ++i) {
      wd[i] = d;
      if (w_norm > 0 && g_norm > 0) ratio[i] = trust * w_norm / (g_norm + d * w_norm);
    }
  }
  for (std::size_t i = 0; i < w.size(); ++i) {
    v[i] = 0.9 * v[i] + lars_lr * factor[i] * ratio[i] * (g[i] + wd[i] * w[i]);
    w[i] -= v[i];
  }
}

struct LarsRun {
  HostMemory memory;
  Buffer w = memory.allocate(size), g = memory.allocate(size);
  Optimizer optimizer = start();

  Optimizer start() {
    for (std::size_t i = 0; i < size; ++i) w.view().host()[i] = start_of(i);
    return Optimizer({.kind = OptimizerKind::lars,
                      .weight_decay = weight_decay,
                      .decays = tensors,
                      .rates = tensor_rates,
                      .trust_coefficient = trust},
                     w, g, memory);
  }
  void begin(int step) {
    for (std::size_t i = 0; i < size; ++i) g.view().host()[i] = lars_gradient(i, step);
    optimizer.begin({.step = step, .learning_rate = lars_lr, .gradient_scale = gradient_scale});
  }
  /// In updates of `piece` elements, last first, as backward finishes them.
  void step(int step, std::size_t piece = size) {
    begin(step);
    for (std::size_t end = size; end > 0; end -= std::min(end, piece))
      optimizer.update({end - std::min(end, piece), std::min(end, piece)});
  }
  std::vector<float> state() const {
    std::vector<float> all(w.view().host().begin(), w.view().host().end());
    const auto momentum = optimizer.slots().at(0).values.host();
    all.insert(all.end(), momentum.begin(), momentum.end());
    return all;
  }
};

double relative_distance(std::span<const float> actual, const Doubles& expected) {
  double difference = 0, length = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    difference += std::pow(actual[i] - expected[i], 2);
    length += std::pow(expected[i], 2);
  }
  return std::sqrt(difference / length);
}

}  // namespace

TEST_CASE("lars: follows its published algorithm over several steps") {
  LarsRun run;
  Doubles w(size), v(size), g(size);
  for (std::size_t i = 0; i < size; ++i) w[i] = start_of(i);

  for (int step = 0; step < 5; ++step) {
    run.step(step, 7001);
    for (std::size_t i = 0; i < size; ++i) g[i] = gradient_scale * lars_gradient(i, step);
    step_oracle(w, v, g);
  }

  CHECK(run.optimizer.slots().at(0).name == "momentum");
  CHECK(relative_distance(run.w.view().host(), w) < 1e-6);
  CHECK(relative_distance(run.optimizer.slots()[0].values.host(), v) < 1e-6);
  // Small beside the others' momentum, so once more by itself: the tensor without decay.
  const Range small = tensors[2].range;
  CHECK(relative_distance(run.optimizer.slots()[0].values.host().subspan(small.first, small.count),
                          {v.begin() + std::ptrdiff_t(small.first),
                           v.begin() + std::ptrdiff_t(small.end())}) < 1e-6);
}

TEST_CASE("lars: threads and buckets do not change the bits") {
  const auto train = [](int threads, std::size_t piece) {
    omp_set_num_threads(threads);
    LarsRun run;
    for (int step = 0; step < 3; ++step) run.step(step, piece);
    return run.state();
  };

  const auto state = train(1, size);

  for (const int threads : {2, 3, 8})
    for (const std::size_t piece : {size, std::size_t{44'444}, std::size_t{4095}})
      CHECK(train(threads, piece) == state);
  omp_set_num_threads(omp_get_num_procs());
}

TEST_CASE("lars: a tensor waits until all of it is summed, other parameters do not") {
  LarsRun run;
  const auto before = run.state();
  const auto changed = [&](std::size_t i) { return run.w.view().host()[i] != before[i]; };

  run.begin(0);
  run.optimizer.update({75'000, size - 75'000});  // a part of the third, and all behind it
  const bool early = changed(74'999) || changed(75'000);
  run.optimizer.update({70'005, 4995});

  CHECK_FALSE(early);
  CHECK(changed(size - 1));
  CHECK(changed(80'000));
  CHECK(changed(70'010));
  CHECK(changed(75'000));
  CHECK_FALSE(changed(70'003));
}

TEST_CASE("lars: goes on from its momentum to the same bits") {
  LarsRun whole, first, second;
  for (int step = 0; step < 4; ++step) whole.step(step);
  for (int step = 0; step < 2; ++step) first.step(step);

  std::ranges::copy(first.w.view().host(), second.w.view().host().begin());
  std::ranges::copy(first.optimizer.slots()[0].values.host(),
                    second.optimizer.slots()[0].values.host().begin());
  for (int step = 2; step < 4; ++step) second.step(step);

  CHECK(second.state() == whole.state());
}
