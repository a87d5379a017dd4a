#include "ringtrain/optim/optimizer.hpp"

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>

#include "ringtrain/base/philox.hpp"
#include "support/catch.hpp"
#include "unit/optim/optimizer_inputs.hpp"

using namespace ringtrain;
using namespace ringtrain::optim;

namespace {

using Doubles = std::vector<double>;
using enum OptimizerKind;

constexpr double lr = 0.05, ema_limit = 0.4;
constexpr int steps = 5;

/// The published rules, one scalar at a time, in double precision.
struct Oracle {
  OptimizerKind kind;
  double epsilon;
  double w, average, first = 0, second;
  double wd, rate;
  int t = 0;

  Oracle(const OptimizerSettings& settings, double start, double decay_here, double factor_here)
      : kind(settings.kind),
        epsilon(settings.epsilon),
        w(start),
        average(start),
        second(settings.kind == rmsprop ? 1 : 0),
        wd(decay_here),
        rate(lr * factor_here) {}

  void update(double gradient) {
    ++t;
    const double g = gradient_scale * gradient + (kind == adamw || kind == lion ? 0 : wd * w);
    switch (kind) {
      case sgd:
        w = w - rate * g;
        break;
      case momentum:  // Polyak
        first = 0.9 * first + g;
        w = w - rate * first;
        break;
      case nesterov:
        first = 0.9 * first + g;
        w = w - rate * (g + 0.9 * first);
        break;
      case rmsprop:  // TensorFlow
        second = 0.9 * second + 0.1 * g * g;
        first = 0.9 * first + rate * g / std::sqrt(second + epsilon);
        w = w - first;
        break;
      case lars:  // lars_test.cpp
        break;
      case lion: {  // Chen et al. 2023, algorithm 2; timm's Lion
        const double way = 0.9 * first + 0.1 * g;
        w = w * (1 - rate * wd) - rate * ((way > 0) - (way < 0));
        first = 0.99 * first + 0.01 * g;
        break;
      }
      case adam:
      case adamw: {  // Kingma and Ba, algorithm 1; Loshchilov and Hutter, algorithm 2
        first = 0.9 * first + (1 - 0.9) * g;
        second = 0.999 * second + (1 - 0.999) * g * g;
        const double m = first / (1 - std::pow(0.9, t)), v = second / (1 - std::pow(0.999, t));
        const double before = w;
        w = w - rate * m / (std::sqrt(v) + epsilon);
        if (kind == adamw) w -= rate * wd * before;
        break;
      }
    }
    const double d = std::min(ema_limit, (1.0 + (t - 1)) / (10.0 + (t - 1)));
    average = d * average + (1 - d) * w;
  }
};

/// Decay on [n/4, n/2) with factor 1 and on [n/2, 3n/4 + 1) with factor 3.
std::vector<WeightDecay> decays(std::size_t n) {
  const std::size_t a = n / 4, b = n / 2, c = std::min(n, 3 * n / 4 + 1);
  return {{{a, b - a}, 1}, {{b, c - b}, 3}};
}

double decay_at(std::size_t i, std::size_t n) {
  for (const WeightDecay& d : decays(n))
    if (i >= d.range.first && i < d.range.end()) return weight_decay * d.factor;
  return 0;
}

/// Of all kinds of neighbours: with another decay, another factor, both or none.
std::vector<RateFactor> rate_factors(std::size_t n) {
  const std::size_t a = n / 8, b = 3 * n / 8, c = n / 2, d = std::min(n, 3 * n / 4 + 1);
  return {{{a, b - a}, 0.25}, {{b, c - b}, 0.5}, {{c, d - c}, 0.75}};
}

double rate_factor_at(std::size_t i, std::size_t n) {
  for (const RateFactor& rate : rate_factors(n))
    if (i >= rate.range.first && i < rate.range.end()) return rate.factor;
  return 1;
}

OptimizerSettings settings_for(OptimizerKind kind, std::size_t n) {
  OptimizerSettings settings;
  settings.kind = kind;
  settings.epsilon = kind == rmsprop ? 1.0 : 1e-8;
  if (kind == lion) settings.beta2 = 0.99;
  settings.weight_decay = weight_decay;
  settings.decays = decays(n);
  if (kind != lars) settings.rates = rate_factors(n);  // they would cut its tensors
  settings.ema = ema_limit;
  return settings;
}

struct OptimizerRun {
  HostMemory memory;
  Buffer w, g;
  Optimizer::Part part;
  Optimizer optimizer;

  OptimizerRun(const OptimizerSettings& settings, std::size_t n,
               const std::optional<Optimizer::Part>& of = std::nullopt)
      : w(memory.allocate(n)),
        g(memory.allocate(n)),
        part(of.value_or(Optimizer::Part())),
        optimizer(start(settings, of)) {}

  Optimizer start(const OptimizerSettings& settings, const std::optional<Optimizer::Part>& of) {
    for (std::size_t i = 0; i < w.view().size(); ++i)
      w.view().host()[i] = Philox(5, Purpose::initialise, 0, i).uniform(-1, 1);
    return Optimizer(settings, w, g, memory, of);
  }
  static std::vector<float> values(View view) { return {view.host().begin(), view.host().end()}; }

  /// One step in updates of `piece` elements, last first, as backward finishes them.
  void step(int step, std::size_t piece) {
    const std::size_t n = w.view().size();
    for (std::size_t i = 0; i < n; ++i) g.view().host()[i] = gradient_of(i, step);
    optimizer.begin({.step = step, .learning_rate = lr, .gradient_scale = gradient_scale});
    for (std::size_t end = n; end > 0; end -= std::min(end, piece))
      optimizer.update({end - std::min(end, piece), std::min(end, piece)});
  }

  std::vector<float> state() const {
    std::vector<float> all(w.view().host().begin(), w.view().host().end());
    for (const auto& slot : optimizer.slots())
      all.insert(all.end(), slot.values.host().begin(), slot.values.host().end());
    return all;
  }
};

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

View slot(const Optimizer& optimizer, const std::string& name) {
  for (const auto& s : optimizer.slots())
    if (s.name == name) return s.values;
  FAIL("no slot " << name);
  return {};
}

}  // namespace

TEST_CASE("optimizer: every rule follows its published formula over several steps") {
  const auto kind = GENERATE(sgd, momentum, nesterov, rmsprop, adam, adamw, lion);
  const auto n = GENERATE(1, 2, 17, 4095, 4097, 70'001);
  CAPTURE(static_cast<int>(kind), n);
  const auto size = static_cast<std::size_t>(n);
  const OptimizerSettings settings = settings_for(kind, size);
  OptimizerRun run(settings, size);
  std::vector<Oracle> oracle;
  for (std::size_t i = 0; i < size; ++i)
    oracle.emplace_back(settings, run.w.view().host()[i], decay_at(i, size),
                        rate_factor_at(i, size));

  double worst = 0, loss_error = 0;
  for (int step = 0; step < steps; ++step) {
    double squares = 0;
    for (const Oracle& o : oracle)
      squares += compute::decouples_decay(kind) ? 0 : o.wd / 2 * o.w * o.w;
    run.step(step, 3001);
    for (std::size_t i = 0; i < size; ++i) oracle[i].update(gradient_of(i, step));
    loss_error = std::max(loss_error, std::abs(run.optimizer.l2_loss() - squares) / (1 + squares));
  }
  for (std::size_t i = 0; i < size; ++i) {
    worst = std::max(worst, std::abs(run.w.view().host()[i] - oracle[i].w));
    worst = std::max(worst, std::abs(run.optimizer.average()->host()[i] - oracle[i].average));
  }

  CHECK(worst < 3e-6);
  CHECK(loss_error < 1e-6);
}

// torch 1.13.0 in fp64: 20 steps of SGD, Adam and AdamW with a parameter group for each two
// weights, whose rates are 0.01 times 1, 0.1, 10, 0.5 and whose decays are 0.1 times 1, 1, 0, 3.
TEST_CASE("optimizer: factors move parameters as torch's parameter groups do") {
  const auto [kind, expected] = GENERATE(table<OptimizerKind, std::vector<double>>({
      {sgd,
       {0.126172076, 0.238871483, 0.374000899, 0.499126262, 0.537500000, 0.837500000, 0.848536478,
        0.971652339}},
      {momentum,
       {0.151096054, 0.188754974, 0.369246016, 0.492993290, 0.228567798, 1.242554426, 0.711034212,
        0.834922052}},
      {nesterov,
       {0.149028572, 0.184645696, 0.368828296, 0.492829121, 0.180711018, 1.280798983, 0.703614640,
        0.825663160}},
      {adam,
       {0.153700414, 0.207987270, 0.373458076, 0.496362677, 0.298845250, 1.117659769, 0.817842212,
        0.939175993}},
      {adamw,
       {0.157090210, 0.213238918, 0.374644751, 0.497565947, 0.298845250, 1.117659769, 0.839889052,
        0.972625894}},
  }));
  OptimizerSettings settings;
  settings.kind = kind;
  settings.weight_decay = 0.1;
  settings.decays = {{{0, 4}, 1}, {{6, 2}, 3}};
  settings.rates = {{{2, 2}, 0.1}, {{4, 2}, 10}, {{6, 2}, 0.5}};
  OptimizerRun run(settings, 8);
  const auto w = run.w.view().host(), g = run.g.view().host();
  for (int i = 0; i < 8; ++i) w[i] = static_cast<float>(i + 1) / 8;

  for (int step = 0; step < 20; ++step) {
    for (int i = 0; i < 8; ++i) g[i] = static_cast<float>((7 * i + 3 * step) % 11 - 5) / 8;
    run.optimizer.begin({.step = step, .learning_rate = 0.01});
    run.optimizer.update({0, 8});
  }

  CAPTURE(kind);
  for (int i = 0; i < 8; ++i) CHECK(w[i] == Approx(expected[i]).margin(2e-6));
}

TEST_CASE("optimizer: factors of 1 change no bit, and 0 keeps parameters where they are") {
  const auto kind = GENERATE(sgd, momentum, nesterov, rmsprop, adam, adamw, lion);
  const std::size_t n = 9001;
  OptimizerSettings plain = settings_for(kind, n);
  plain.rates.clear();
  OptimizerSettings ones = plain, still = plain;
  ones.rates = {{{0, 4000}, 1}, {{5000, 100}, 1}};
  still.rates = {{{4000, 1000}, 0}};
  OptimizerRun expected(plain, n), same(ones, n), partly(still, n);
  const std::vector<float> start = partly.values(partly.w);

  for (int step = 0; step < 3; ++step)
    for (OptimizerRun* run : {&expected, &same, &partly}) run->step(step, n);

  CHECK(same_bits(same.state(), expected.state()));
  for (std::size_t i = 0; i < n; ++i) {
    const float w = partly.w.view().host()[i];
    REQUIRE(w == (i >= 4000 && i < 5000 ? start[i] : expected.w.view().host()[i]));
  }
}

TEST_CASE("optimizer: an element's arithmetic is the written one, without fused operations") {
  OptimizerSettings settings;
  settings.weight_decay = weight_decay;
  const std::size_t n = 1000;
  settings.decays = {{{0, n}, 1}};
  OptimizerRun run(settings, n);
  std::vector<float> w(run.state()), m(n);

  for (int step = 0; step < 3; ++step) {
    run.step(step, n);
    for (std::size_t i = 0; i < n; ++i) {
      // volatile: each product and sum is rounded by itself
      const volatile float scaled = static_cast<float>(gradient_scale) * gradient_of(i, step);
      const volatile float decayed = static_cast<float>(weight_decay) * w[i];
      const volatile float kept = 0.9f * m[i], d = scaled + decayed;
      m[i] = kept + d;
      const volatile float change = static_cast<float>(lr) * m[i];
      w[i] -= change;
    }
  }

  w.resize(n);
  w.insert(w.end(), m.begin(), m.end());
  CHECK(same_bits(run.state(), w));
}

TEST_CASE("optimizer: threads and buckets do not change the bits") {
  const auto kind = GENERATE(momentum, rmsprop, adamw);
  const std::size_t n = 150'001;
  const auto train = [&](int threads, std::size_t piece) {
    omp_set_num_threads(threads);
    OptimizerRun run(settings_for(kind, n), n);
    for (int step = 0; step < 3; ++step) run.step(step, piece);
    return std::pair(run.state(), run.optimizer.l2_loss());
  };

  const auto [state, loss] = train(1, n);

  for (const int threads : {2, 3, 8}) {
    const auto [other, other_loss] = train(threads, n);
    CHECK(same_bits(state, other));
    CHECK(loss == other_loss);
  }
  CHECK(same_bits(state, train(2, 77'777).first));
  CHECK(same_bits(state, train(2, 4095).first));
  omp_set_num_threads(omp_get_num_procs());
}

namespace {

using Part = Optimizer::Part;

// Two ranks' parts of n parameters, each of several ranges, cut where nothing else is.
std::vector<Part> two_parts(std::size_t n) {
  std::vector<Part> parts(2);
  for (std::size_t first = 0, r = 0; first < n; first += 10'007, ++r)
    parts[r % 2].ranges.push_back({first, std::min<std::size_t>(10'007, n - first)});
  return parts;
}

// Ranks that share one gradient, as after the sums: each replaces its part of it.
struct Sharing {
  std::vector<OptimizerRun> ranks;

  Sharing(const OptimizerSettings& settings, std::vector<Part> parts, std::size_t n) {
    for (Part& part : parts) ranks.emplace_back(settings, n, std::move(part));
  }
  void replace(int step, float last) {
    View first = ranks[0].g;
    for (std::size_t i = 0; i < first.size(); ++i) first.host()[i] = gradient_of(i, step);
    first.host().back() = last;
    for (OptimizerRun& rank : ranks) {
      std::ranges::copy(first.host(), rank.g.view().data());
      rank.optimizer.begin({.step = step, .learning_rate = lr, .gradient_scale = gradient_scale});
      for (const Range& range : rank.part.ranges)
        for (std::size_t at = range.first; at < range.end(); at += 4001)
          rank.optimizer.replace({at, std::min<std::size_t>(4001, range.end() - at)});
      std::ranges::copy(rank.g.view().host(), first.data());
    }
    for (OptimizerRun& rank : ranks) std::ranges::copy(first.host(), rank.g.view().data());
  }
};

}  // namespace

TEST_CASE("optimizer: ranks that share the work come to the bits of one that does all") {
  const auto kind = GENERATE(sgd, momentum, nesterov, rmsprop, adam, adamw, lion);
  const std::size_t n = 50'001;
  OptimizerRun one(settings_for(kind, n), n);
  Sharing shared(settings_for(kind, n), two_parts(n), n);

  for (int step = 0; step < 3; ++step) {
    one.step(step, n);
    shared.replace(step, gradient_of(n - 1, step));
    for (OptimizerRun& rank : shared.ranks) rank.optimizer.adopt();
  }

  for (OptimizerRun& rank : shared.ranks) {
    CHECK(same_bits(rank.values(rank.w), one.values(one.w)));
    CHECK(same_bits(rank.values(slot(rank.optimizer, "ema")),
                    one.values(slot(one.optimizer, "ema"))));
    CHECK(rank.optimizer.l2_loss() == one.optimizer.l2_loss());
    for (const auto& [name, values] : rank.optimizer.slots()) {
      if (name == "ema") continue;
      std::vector<float> expected;
      for (const Range& range : rank.part.ranges)
        for (const float x : slot(one.optimizer, name).slice(range).host()) expected.push_back(x);
      CHECK(same_bits(rank.values(values), expected));
    }
  }
}

TEST_CASE("optimizer: shared work that is not finite is seen, and undone") {
  const std::size_t n = 30'000;
  auto parts = two_parts(n);
  for (Part& part : parts) part.revertible = true;
  Sharing shared(settings_for(adam, n), parts, n);
  shared.replace(0, 1);
  for (OptimizerRun& rank : shared.ranks) rank.optimizer.adopt();
  std::vector<std::vector<float>> before;
  for (const OptimizerRun& rank : shared.ranks) before.push_back(rank.state());

  shared.replace(1, std::numeric_limits<float>::infinity());

  for (std::size_t r = 0; r < 2; ++r) {
    OptimizerRun& rank = shared.ranks[r];
    CHECK(first_non_finite(rank.g) == n - 1);
    CHECK_FALSE(same_bits(rank.state(), before[r]));
    rank.optimizer.revert();
    CHECK(same_bits(rank.state(), before[r]));
  }
}

TEST_CASE("optimizer: shared work that would make a slot infinite is seen, and undone") {
  const std::size_t n = 30'000;
  auto parts = two_parts(n);
  for (Part& part : parts) part.revertible = true;
  Sharing shared(settings_for(adam, n), parts, n);
  const std::vector<float> before = shared.ranks[0].state();

  shared.replace(0, 1e30f);  // its square is too large, its update 0

  CHECK(first_non_finite(shared.ranks[0].g).has_value());
  CHECK(first_non_finite(shared.ranks[1].g).has_value());
  shared.ranks[0].optimizer.revert();
  CHECK(same_bits(shared.ranks[0].state(), before));
}

TEST_CASE("optimizer: whether an update leaves all finite is known before it is made") {
  const auto kind = GENERATE(sgd, momentum, nesterov, rmsprop, adam, adamw, lars, lion);
  const std::size_t n = GENERATE(5, 80'001);
  OptimizerRun run(settings_for(kind, n), n);
  CAPTURE(kind, n);
  run.step(0, n);
  const std::vector<float> before = run.state();
  const auto stays_finite = [&](float last) {
    run.g.view().host().back() = last;
    run.optimizer.begin({.step = 1, .learning_rate = 100, .gradient_scale = 1});
    return run.optimizer.stays_finite();
  };

  CHECK(stays_finite(1));
  CHECK_FALSE(
      stays_finite(kind == lars || kind == lion ? std::numeric_limits<float>::infinity() : 3e38f));
  CHECK(same_bits(run.state(), before));
  CHECK(stays_finite(1));
  run.optimizer.update({0, n});
  CHECK_FALSE(first_non_finite(run.w).has_value());
}

TEST_CASE("optimizer: a factor decides whether an update stays finite, too") {
  OptimizerSettings settings;
  settings.kind = sgd;
  settings.rates = {{{3, 1}, GENERATE(0.0, 1e-3, 1.0)}};
  OptimizerRun run(settings, 5);
  std::ranges::fill(run.g.view().host(), 0.f);
  run.g.view().host()[3] = 3e38f;
  run.optimizer.begin({.step = 0, .learning_rate = 100});

  CHECK(run.optimizer.stays_finite() == (settings.rates[0].factor < 1));
}

TEST_CASE("optimizer: a step that was left out is none for bias corrections and warm-up") {
  const auto kind = GENERATE(adam, adamw, momentum);
  const std::size_t n = 5'001;
  OptimizerRun three(settings_for(kind, n), n), five(settings_for(kind, n), n);
  const auto gradients = [&](OptimizerRun& run, int seed) {
    for (std::size_t i = 0; i < n; ++i) run.g.view().host()[i] = gradient_of(i, seed);
  };
  const auto begin = [](OptimizerRun& run, std::int64_t step) {
    run.optimizer.begin({.step = step, .learning_rate = lr, .gradient_scale = gradient_scale});
  };

  for (int update = 0; update < 3; ++update) {
    gradients(three, update);
    begin(three, update);
    three.optimizer.update({0, n});
  }
  for (int step = 0, update = 0; step < 5; ++step) {
    begin(five, step);
    if (step == 0 || step == 2) {
      five.optimizer.skip();
      continue;
    }
    gradients(five, update++);
    five.optimizer.update({0, n});
  }

  CHECK(same_bits(five.state(), three.state()));
  CHECK(five.optimizer.average_decay() == three.optimizer.average_decay());
  CHECK(*five.optimizer.skipped().data() == 2);
  five.optimizer.reset();
  CHECK(*five.optimizer.skipped().data() == 0);
}

TEST_CASE("optimizer: a part is updated in its ranges only") {
  OptimizerRun run(settings_for(momentum, 100), 100, Part{{{10, 20}, {30, 5}}});

  run.optimizer.begin({});
  run.optimizer.replace({12, 18});

  CHECK_THROWS(run.optimizer.replace({12, 19}));  // the next range begins, but is another
  CHECK_THROWS(run.optimizer.replace({0, 1}));
  CHECK_THROWS(run.optimizer.update({10, 20}));
  CHECK_THROWS(run.optimizer.revert());
  CHECK_THROWS(OptimizerRun(settings_for(lars, 9), 9, Part{}));
}

TEST_CASE("optimizer: slots have their checkpoint names and starting values") {
  const auto names = [](OptimizerKind kind) {
    const OptimizerRun run(settings_for(kind, 3), 3);
    std::string all;
    for (const auto& s : run.optimizer.slots()) all += s.name + " ";
    return all;
  };

  CHECK(names(sgd) == "ema ");
  CHECK(names(momentum) == "momentum ema ");
  CHECK(names(nesterov) == "momentum ema ");
  CHECK(names(rmsprop) == "mean_square momentum ema ");
  CHECK(names(adam) == "adam_m adam_v ema ");
  const OptimizerRun run(settings_for(rmsprop, 3), 3);
  CHECK(slot(run.optimizer, "mean_square").host()[2] == 1);
  CHECK(slot(run.optimizer, "momentum").host()[2] == 0);
  CHECK(slot(run.optimizer, "ema").host()[2] == run.w.view().host()[2]);
}

TEST_CASE("optimizer: reset starts the average from the parameters as they are now") {
  OptimizerRun run(settings_for(momentum, 5), 5);
  run.step(0, 5);
  run.w.view().host()[4] = 42;

  run.optimizer.reset();

  CHECK(run.optimizer.average()->host()[4] == 42);
  CHECK(slot(run.optimizer, "momentum").host()[4] == 0);
}

TEST_CASE("optimizer: without a moving average there is no slot for it") {
  OptimizerSettings settings;
  settings.kind = sgd;
  const OptimizerRun run(settings, 4);

  CHECK(run.optimizer.slots().empty());
  CHECK_FALSE(run.optimizer.average());
}

TEST_CASE("optimizer: an update touches its range alone, and leaves gradients") {
  OptimizerRun run(settings_for(momentum, 9000), 9000);
  run.step(0, 9000);
  const auto before = run.state();
  const std::vector<float> gradients(run.g.view().host().begin(), run.g.view().host().end());

  run.optimizer.begin({.step = 1, .learning_rate = lr});
  run.optimizer.update({4000, 200});
  run.optimizer.update({5000, 0});

  const auto after = run.state();
  for (std::size_t i = 0; i < after.size(); ++i)
    REQUIRE((after[i] != before[i]) == (i % 9000 >= 4000 && i % 9000 < 4200));
  CHECK(same_bits(gradients, {run.g.view().host().begin(), run.g.view().host().end()}));
}

TEST_CASE("optimizer: ranges that are not inside the parameters are refused") {
  OptimizerSettings overlapping;
  overlapping.decays = {{{0, 3}, 1}, {{2, 2}, 1}};
  OptimizerSettings outside;
  outside.decays = {{{3, 3}, 1}};
  OptimizerSettings same_rate, far_rate;
  same_rate.rates = {{{0, 3}, 1}, {{2, 2}, 1}};
  far_rate.rates = {{{3, 3}, 1}};
  OptimizerRun run(settings_for(sgd, 5), 5);

  CHECK_THROWS_AS(OptimizerRun(overlapping, 5), Error);
  CHECK_THROWS_AS(OptimizerRun(outside, 5), Error);
  CHECK_THROWS_AS(OptimizerRun(same_rate, 5), Error);
  CHECK_THROWS_AS(OptimizerRun(far_rate, 5), Error);
  CHECK_THROWS_AS(run.optimizer.update({4, 2}), Error);
}

TEST_CASE("moving average: its decay grows to the limit as its warm-up says") {
  using Warmup = compute::AverageTiming::Warmup;
  const auto decay = [](compute::AverageTiming timing, double limit, double before) {
    return timing.decay(limit, before);
  };

  CHECK(decay({}, 0.9999, 0) == Approx(0.1));
  CHECK(decay({}, 0.9999, 90) == Approx(0.91));
  CHECK(decay({}, 0.5, 90) == 0.5);
  CHECK(decay({.warmup = Warmup::timm}, 0.9999, 0) == 0);
  CHECK(decay({.warmup = Warmup::timm}, 0.9999, 7) == Approx(0.75));
  CHECK(decay({.warmup = Warmup::timm}, 0.7, 7) == 0.7);
  CHECK(decay({.warmup = Warmup::none}, 0.9999, 0) == 0.9999);
  CHECK(decay({.warmup = Warmup::copies, .length = 5}, 0.9, 4) == 0);
  CHECK(decay({.warmup = Warmup::copies, .length = 5}, 0.9, 5) == 0.9);
  // airbench94: 0.95^5 (step / steps)^3 each five steps
  const compute::AverageTiming airbench{
      .warmup = Warmup::power, .every = 5, .length = 200, .power = 3, .lookahead = true};
  CHECK(decay(airbench, 0.95, 98) == 1);
  CHECK(decay(airbench, 0.95, 99) == Approx(0.95 / 8));
  CHECK(decay(airbench, 0.95, 199) == Approx(0.95));
}

// Lookahead: slow weights go a part of the way to the fast ones every k steps, which begin there.
TEST_CASE("moving average: parameters are pulled back to it, in parts or wholly") {
  const auto kind = GENERATE(sgd, nesterov, adamw);
  const std::size_t n = 9001;
  OptimizerSettings plain = settings_for(kind, n), looks = plain;
  looks.ema = 0.25;
  looks.average = {.warmup = compute::AverageTiming::Warmup::none, .every = 3, .lookahead = true};
  OptimizerRun fast(plain, n), run(looks, n);
  std::vector<float> slow = OptimizerRun::values(run.w);

  for (int step = 0; step < 9; ++step) {
    std::ranges::copy(run.w.view().host(), fast.w.view().host().begin());
    fast.step(step, 3001);
    run.step(step, 3001);
    if (step % 3 < 2) {
      CHECK(same_bits(OptimizerRun::values(run.w), OptimizerRun::values(fast.w)));
      continue;
    }
    for (std::size_t i = 0; i < n; ++i) slow[i] += 0.75f * (fast.w.view().host()[i] - slow[i]);
    CHECK(same_bits(OptimizerRun::values(run.w), slow));
    CHECK(same_bits(OptimizerRun::values(*run.optimizer.average()), slow));
  }
}

TEST_CASE("moving average: moves each value by one minus the decay of the distance") {
  HostMemory memory;
  const std::size_t n = 70'003;
  const Buffer average = memory.allocate(n), values = memory.allocate(n);
  for (std::size_t i = 0; i < n; ++i) values.view().host()[i] = static_cast<float>(i % 64);

  move_average(average, values, 0.75);

  for (std::size_t i = 0; i < n; ++i)
    REQUIRE(average.view().host()[i] == static_cast<float>(i % 64) / 4);
}

TEST_CASE("first_non_finite: finds the first of each kind, wherever it is") {
  const auto size = GENERATE(1, 15, 4097, 100'003);
  const auto bad = GENERATE(HUGE_VALF, -HUGE_VALF, std::numeric_limits<float>::quiet_NaN());
  HostMemory memory;
  const auto n = static_cast<std::size_t>(size);
  const Buffer values = memory.allocate(n);
  const auto x = values.view().host();
  for (std::size_t i = 0; i < n; ++i)
    x[i] =
        i % 2 == 0 ? std::numeric_limits<float>::max() : std::numeric_limits<float>::denorm_min();
  REQUIRE_FALSE(first_non_finite(values));

  x[n - 1] = bad;
  CHECK(first_non_finite(values) == n - 1);
  x[n / 2] = bad;
  CHECK(first_non_finite(values) == n / 2);
  x[0] = bad;
  CHECK(first_non_finite(values) == std::size_t{0});
}

TEST_CASE("first_non_finite: an empty view is finite") { CHECK_FALSE(first_non_finite(View())); }

// torch.nn.utils.clip_grad_norm_: the factor is most / (norm + 1e-6), where that is below 1.
TEST_CASE("optimizer: gradients are clipped by the norm of all of them") {
  const auto kind = GENERATE(sgd, momentum, adamw);
  const double most = GENERATE(0.5, 60.0, 1e6);
  const std::size_t n = 9001;
  OptimizerSettings settings = settings_for(kind, n), clipped = settings;
  clipped.clip_norm = most;
  OptimizerRun by_hand(settings, n), run(clipped, n);
  double squares = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const double g = gradient_scale * gradient_of(i, 0);
    squares += g * g;
  }
  const double norm = std::sqrt(squares), factor = std::min(1.0, most / (norm + 1e-6));
  CHECK(norm > 20);
  CHECK(norm < 30);

  const auto step = [&](OptimizerRun& of, double scale, bool clips) {
    for (std::size_t i = 0; i < n; ++i) of.g.view().host()[i] = gradient_of(i, 0);
    of.optimizer.begin({.step = 0, .learning_rate = lr, .gradient_scale = scale});
    if (clips) of.optimizer.clip();
    CHECK(of.optimizer.stays_finite());
    of.optimizer.update({0, n});
  };
  step(by_hand, gradient_scale * factor, false);
  step(run, gradient_scale, true);

  for (std::size_t i = 0; i < n; ++i)
    REQUIRE(std::abs(run.w.view().host()[i] - by_hand.w.view().host()[i]) < 1e-6);
  if (factor == 1) CHECK(same_bits(run.state(), by_hand.state()));
}

TEST_CASE("optimizer: gradients of what does not learn count for nothing where they are clipped") {
  const std::size_t n = 9001, learning = 6000;
  OptimizerSettings settings;
  settings.kind = sgd;
  settings.clip_norm = 1;
  settings.rates = {{{learning, n - learning}, 0}};
  OptimizerRun run(settings, n);
  const std::vector<float> before = OptimizerRun::values(run.w);
  double squares = 0;
  for (std::size_t i = 0; i < n; ++i) {
    run.g.view().host()[i] = gradient_of(i, 0);
    if (i < learning) squares += double(gradient_of(i, 0)) * gradient_of(i, 0);
  }

  run.optimizer.begin({.step = 0, .learning_rate = lr});
  run.optimizer.clip();
  run.optimizer.update({0, n});

  const double factor = 1 / (std::sqrt(squares) + 1e-6);
  for (std::size_t i = 0; i < n; ++i) {
    const double moved = i < learning ? lr * factor * gradient_of(i, 0) : 0;
    REQUIRE(std::abs(run.w.view().host()[i] - (before[i] - moved)) < 1e-7);
  }
}
