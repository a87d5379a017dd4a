// The optimizer's kernels against the optimizer on the host.
#include "ringtrain/optim/optimizer.hpp"

#include <limits>

#include "compute/cuda/kernels/device/update/optimizer_work.hpp"
#include "support/kernel_case.hpp"
#include "unit/compute/cuda/kernel_inputs.hpp"

using namespace ringtrain;
using namespace ringtrain::compute;
using namespace ringtrain::compute::cuda::kernels;

namespace {

constexpr std::size_t size = 2500;  // several blocks, the last in part
constexpr float loss_scale = 1024;
constexpr double gradient_scale = 0.5;
constexpr std::size_t most_blocks = work::most_update_blocks;

// On the heap, where a GPU sees it.
std::unique_ptr<UpdateState> fresh_state(float scale) {
  auto state = std::make_unique<UpdateState>();
  state->loss_scale = scale;
  return state;
}

/// Everything that the kernels keep on the device.
struct Device {
  RuleSettings settings;
  std::vector<float> parameters, slot0, slot1, average;
  DeviceTensor gradients, copy;
  std::vector<DecaySegment> segments{
      {3, 0}, {1001, 0.01, true, 0.5}, {1003, 0}, {2000, 0.005, true}, {size, 0, false, 3}};
  std::vector<double> workspace =
      std::vector<double>(most_blocks + 5 * (1 + 2 * work::tensor_parts), NAN);
  std::unique_ptr<UpdateState> state = fresh_state(loss_scale);
  std::unique_ptr<StepScalars> scalars = std::make_unique<StepScalars>();
  UpdateBuffers buffers{};

  Device(const RuleSettings& rule, Element gradient, Element copied,
         const std::vector<float>& start)
      : settings(rule),
        parameters(start),
        slot0(size, rule.kind == OptimizerKind::rmsprop ? 1.f : 0.f),
        slot1(size),
        average(start),
        gradients(gradient, size),
        copy(copied, size) {
    const std::size_t slots = slots_of(rule.kind).size();
    buffers = {parameters.data(),
               gradients.data(),
               gradient,
               slots > 0 ? slot0.data() : nullptr,
               slots > 1 ? slot1.data() : nullptr,
               average.data(),
               copied == Element::fp32 ? nullptr : copy.data(),
               copied,
               segments.data(),
               std::uint32_t(segments.size()),
               workspace.data()};
  }

  void decay_by(const optim::OptimizerSettings& of) {
    segments = optim::decay_segments(of, size);
    buffers.segments = segments.data();
    buffers.segment_count = std::uint32_t(segments.size());
  }
  /// One step whose gradients arrive in ranges, from the back as they do.
  void step(std::int64_t number, double learning_rate) {
    *scalars = {number, learning_rate, gradient_scale};
    run_twice({bytes_of_values(parameters), bytes_of_values(slot0), bytes_of_values(slot1),
               bytes_of_values(average), copy.bytes(), bytes_of_values(*state)},
              [&](auto& queue) {
                work::begin_update(state.get(), queue);
                work::mark_not_finite(buffers.gradient_element, size, gradients.data(), state.get(),
                                      queue);
                work::prepare_update(settings, scalars.get(), state.get(), queue);
                if (buffers.gradient_element == Element::fp32)
                  work::clip_gradients(settings, size, buffers, state.get(), queue);
                work::measure_tensors(settings, buffers, state.get(), queue);
                for (const Range range : {Range{1027, size - 1027}, Range{1026, 1}, Range{6, 1020},
                                          Range{2, 4}, Range{1, 1}, Range{0, 1}, Range{7, 0}})
                  work::update(settings, buffers, range, scalars.get(), state.get(), queue);
              });
  }
};

RuleSettings rule_settings(const optim::OptimizerSettings& s, OptimizerKind rule) {
  return {rule,      s.momentum, s.mean_square_decay, s.beta1,     s.beta2,
          s.epsilon, s.ema,      s.trust_coefficient, s.clip_norm, s.average};
}

RuleSettings plain(OptimizerKind rule) { return rule_settings({}, rule); }

void write_gradients(Device& device, int step, std::vector<float>& host) {
  std::vector<double> values;
  for (const float v : random_floats(size, 100 + step)) values.push_back(v * loss_scale);
  device.gradients.write(values);
  const auto rounded = device.gradients.read();
  for (std::size_t i = 0; i < size; ++i) host[i] = static_cast<float>(rounded[i] / loss_scale);
}

}  // namespace

TEST_CASE("cuda kernels: gradients are clipped as the host clips them") {
  const auto kind = GENERATE(OptimizerKind::momentum, OptimizerKind::adamw, OptimizerKind::lars);
  optim::OptimizerSettings settings;
  settings.kind = kind;
  settings.weight_decay = 0.01;
  settings.decays = {{{3, 998}, 1}, {{1003, 997}, 0.5}};
  settings.rates = {{{2000, 500}, 0}};  // these do not learn, and do not count
  settings.clip_norm = GENERATE(2.0, 1e6);
  HostMemory memory;
  std::vector<float> w = random_floats(size, 1), g(size);
  Device device(rule_settings(settings, kind), Element::fp32, Element::fp32, w);
  device.decay_by(settings);
  optim::Optimizer host(settings, {w.data(), size}, {g.data(), size}, memory);

  for (int step = 0; step < 3; ++step) {
    write_gradients(device, step, g);
    host.begin({step, 0.05, gradient_scale});
    host.clip();
    host.update({0, size});
    device.step(step, 0.05);
    double squares = 0;
    for (int i = 0; i < 2000; ++i) squares += double(g[i] * loss_scale) * (g[i] * loss_scale);
    CHECK(device.state->gradient_squares == Approx(squares).epsilon(1e-9));
  }

  CHECK(relative_norm(device.parameters, w) < 1e-6);
}

TEST_CASE("cuda kernels: the average moves, and is looked ahead of, when the host's does") {
  const auto copied = GENERATE(Element::fp32, Element::bf16);
  optim::OptimizerSettings settings;
  settings.kind = OptimizerKind::nesterov;
  settings.ema = 0.25;
  settings.average = {.warmup = GENERATE(AverageTiming::Warmup::timm, AverageTiming::Warmup::power),
                      .every = 2,
                      .length = 6,
                      .power = 3,
                      .lookahead = true};
  HostMemory memory;
  std::vector<float> w = random_floats(size, 1), g(size);
  Device device(rule_settings(settings, settings.kind), Element::fp32, copied, w);
  device.decay_by(settings);
  optim::Optimizer host(settings, {w.data(), size}, {g.data(), size}, memory);

  for (int step = 0; step < 6; ++step) {
    write_gradients(device, step, g);
    host.begin({step, 0.05, gradient_scale});
    host.update({0, size});
    device.step(step, 0.05);
    CHECK(device.state->factors.lookahead == (step % 2 == 1));
    CHECK(relative_norm(device.parameters, w) < 1e-6);
    CHECK(relative_norm(device.average, host.average()->host()) < 1e-6);
    if (step % 2 == 1) CHECK(device.parameters == device.average);
    if (copied == Element::fp32) continue;
    DeviceTensor rounded(copied, size);
    rounded.write(std::vector<double>(device.parameters.begin(), device.parameters.end()));
    CHECK(device.copy.read() == rounded.read());
  }
}

TEST_CASE("cuda kernels: every optimizer does what the host's does") {
  const auto kind = GENERATE(OptimizerKind::sgd, OptimizerKind::momentum, OptimizerKind::nesterov,
                             OptimizerKind::rmsprop, OptimizerKind::adam, OptimizerKind::adamw,
                             OptimizerKind::lars, OptimizerKind::lion);
  const auto [gradient, copied] =
      GENERATE(table<Element, Element>({{Element::fp32, Element::fp32},
                                        {Element::fp32, Element::fp16},
                                        {Element::fp32, Element::bf16},
                                        {Element::fp16, Element::fp16},
                                        {Element::bf16, Element::bf16}}));
  CAPTURE(kind, gradient, copied);
  optim::OptimizerSettings settings;
  settings.kind = kind;
  settings.weight_decay = 0.01;
  settings.decays = {{{3, 998}, 1}, {{1003, 997}, 0.5}};
  settings.rates = {{{3, 998}, 0.5}, {{2000, 500}, 3}};
  settings.ema = 0.4;
  settings.epsilon = 0.1;  // so large that its place in the formula shows
  HostMemory memory;
  std::vector<float> w = random_floats(size, 1), g(size);
  Device device(rule_settings(settings, kind), gradient, copied, w);
  optim::Optimizer host(settings, {w.data(), size}, {g.data(), size}, memory);

  for (int step = 0; step < 5; ++step) {
    write_gradients(device, step, g);
    host.begin({step, 0.05, gradient_scale});
    host.update({0, size});
    device.step(step, 0.05);
    CHECK(device.state->squares / 2 == Approx(host.l2_loss()).epsilon(1e-9));
  }

  CHECK(relative_norm(device.parameters, w) < 1e-6);
  const auto& slots = host.slots();
  if (slots.size() > 1) CHECK(relative_norm(device.slot0, slots[0].values.host()) < 1e-6);
  if (slots.size() > 2) CHECK(relative_norm(device.slot1, slots[1].values.host()) < 1e-6);
  CHECK(relative_norm(device.average, host.average()->host()) < 1e-6);
  if (copied != Element::fp32) {
    DeviceTensor rounded(copied, size);
    rounded.write(std::vector<double>(device.parameters.begin(), device.parameters.end()));
    CHECK(device.copy.read() == rounded.read());
  }
}

// Ranges as several ranks have them; each rank's slots are packed.
TEST_CASE("cuda kernels: parts of an update come to the same bits as the whole") {
  const auto rule = GENERATE(OptimizerKind::momentum, OptimizerKind::adam, OptimizerKind::rmsprop,
                             OptimizerKind::adamw);
  const auto copied = GENERATE(Element::fp32, Element::fp16, Element::bf16);
  CAPTURE(int(rule), copied);
  optim::OptimizerSettings settings;
  settings.ema = 0.4;
  const auto start = random_floats(size, 1);
  Device whole(rule_settings(settings, rule), Element::fp32, copied, start),
      parts(rule_settings(settings, rule), Element::fp32, copied, start);
  const std::vector<std::vector<Range>> ranks{{{0, 400}, {800, 852}}, {{400, 400}, {1652, 848}}};
  const auto all_slots = [&](std::vector<float> Device::*slot) {  // of both ranks, packed
    std::vector<float> packed;
    for (const auto& ranges : ranks)
      for (const Range& r : ranges)
        packed.insert(packed.end(), (whole.*slot).begin() + std::ptrdiff_t(r.first),
                      (whole.*slot).begin() + std::ptrdiff_t(r.end()));
    return packed;
  };

  for (int step = 0; step < 3; ++step) {
    std::vector<float> g(size);
    write_gradients(whole, step, g);
    write_gradients(parts, step, g);
    whole.step(step, 0.05);
    *parts.scalars = {step, 0.05, gradient_scale};
    KernelQueue queue = KernelQueue::one_way();
    work::begin_update(parts.state.get(), queue);
    for (const auto& ranges : ranks)
      for (const Range& range : ranges)
        work::add_squares(parts.settings, parts.buffers, range, parts.state.get(), queue);
    CHECK(parts.state->squares == Approx(whole.state->squares).epsilon(1e-12));
    work::prepare_update(parts.settings, parts.scalars.get(), parts.state.get(), queue);
    UpdateBuffers own = parts.buffers;
    own.average = nullptr;
    own.copy = nullptr;
    own.workspace = nullptr;
    for (const auto& ranges : ranks)
      for (const Range& range : ranges) {
        own.slots_from = range.first;
        work::update(parts.settings, own, range, parts.scalars.get(), parts.state.get(), queue);
        if (own.slot0) own.slot0 += range.count;
        if (own.slot1) own.slot1 += range.count;
      }
    CHECK(parts.state->squares == Approx(whole.state->squares).epsilon(1e-12));  // not twice
    run_twice({bytes_of_values(parts.average), parts.copy.bytes()},
              [&](auto& q) { work::adopt(size, parts.buffers, parts.state.get(), q); });
  }

  CHECK(parts.parameters == whole.parameters);
  CHECK(parts.slot0 == all_slots(&Device::slot0));
  CHECK(parts.slot1 == all_slots(&Device::slot1));
  CHECK(parts.average == whole.average);
  if (copied != Element::fp32) CHECK(parts.copy.read() == whole.copy.read());
}

TEST_CASE("cuda kernels: a part that is not finite makes the sum of the heads infinite") {
  const bool finite = GENERATE(true, false);
  std::vector<float> head(step_results, 0);
  const auto state = fresh_state(1);
  state->squares = 2.5;
  state->not_finite = !finite;
  KernelQueue queue = KernelQueue::one_way();

  work::put_part(head.data(), state.get(), queue);
  *state = {};
  work::mark_not_finite(Element::fp32, head.size(), head.data(), state.get(), queue);

  CHECK(head[8] == 2.5f);
  CHECK(state->not_finite == !finite);
}

TEST_CASE("cuda kernels: squares too large for the head make no step skipped") {
  const double squares = GENERATE(1e39, 1e300, HUGE_VAL, std::nan(""));
  std::vector<float> head(step_results, 0);
  const auto state = fresh_state(1);
  state->squares = squares;
  KernelQueue queue = KernelQueue::one_way();

  work::put_part(head.data(), state.get(), queue);
  for (float& sum : head) sum *= 65536;  // ranks
  *state = {};
  work::mark_not_finite(Element::fp32, head.size(), head.data(), state.get(), queue);

  CHECK(head[8] > 1e38f);
  CHECK_FALSE(state->not_finite);
}

TEST_CASE("cuda kernels: an update of more parameters than blocks take at once reaches all") {
  const std::size_t count = 1024 * most_blocks + 2500;
  const std::vector<float> start = random_floats(count, 1), gradients(count, 1);
  std::vector<float> parameters = start;
  std::vector<DecaySegment> segments{{count, 0.25}};
  std::vector<double> workspace(most_blocks, NAN);
  const auto state = fresh_state(1);
  const auto scalars = std::make_unique<StepScalars>(StepScalars{0, 0.5, 1});
  const UpdateBuffers buffers{
      parameters.data(), gradients.data(), Element::fp32,   nullptr, nullptr,         nullptr,
      nullptr,           Element::fp32,    segments.data(), 1,       workspace.data()};

  run_twice({bytes_of_values(parameters), bytes_of_values(*state)}, [&](auto& queue) {
    work::prepare_update(plain(OptimizerKind::sgd), scalars.get(), state.get(), queue);
    work::update(plain(OptimizerKind::sgd), buffers, {0, count}, scalars.get(), state.get(), queue);
  });

  double squares = 0;
  std::vector<float> expected;
  for (const float w : start) {
    squares += 0.25 * w * w;
    expected.push_back(w - 0.5f * (1 + 0.25f * w));
  }
  CHECK(state->squares == Approx(squares).epsilon(1e-9));
  CHECK(relative_norm(parameters, expected) < 1e-6);
}

TEST_CASE("cuda kernels: 16-bit gradients with a copy of another type are refused") {
  Device device(plain(OptimizerKind::sgd), Element::fp16, Element::bf16, random_floats(size, 1));
  KernelQueue queue = KernelQueue::one_way();

  CHECK_THROWS_AS(work::update(device.settings, device.buffers, {0, size}, device.scalars.get(),
                               device.state.get(), queue),
                  Error);
}

TEST_CASE("cuda kernels: a gradient that is not finite keeps everything as it was") {
  const double bad = GENERATE(INFINITY, -INFINITY, NAN);
  const auto [element, at] = GENERATE(table<Element, std::size_t>(
      {{Element::fp32, 0}, {Element::fp16, size - 1}, {Element::bf16, 1234}}));
  CAPTURE(bad, element, at);
  const auto start = random_floats(size, 1);
  Device device(plain(OptimizerKind::adam), element, Element::fp32, start);
  std::vector<double> values(size, 1);
  values[at] = bad;
  device.gradients.write(values);

  device.step(0, 0.05);
  std::vector<float> running{1};
  KernelQueue queue = KernelQueue::one_way();
  std::vector<float> batch{3};
  work::move_average(1, batch.data(), running.data(), 0.5f, device.state.get(), queue);

  CHECK(device.state->not_finite == 1);
  CHECK(device.parameters == start);
  CHECK(device.slot1 == std::vector<float>(size));
  CHECK(device.average == start);
  CHECK(running[0] == 1);
  work::move_average(1, batch.data(), running.data(), device.state.get(), queue);
  CHECK(running[0] == 1);

  values[at] = 1;
  device.gradients.write(values);
  device.step(1, 0.05);
  work::move_average(1, batch.data(), running.data(), 0.5f, device.state.get(), queue);
  CHECK(device.state->not_finite == 0);
  CHECK(device.parameters != start);
  CHECK(running[0] == 2);
}

TEST_CASE("cuda kernels: the largest finite gradients are finite") {
  Device device(plain(OptimizerKind::sgd), Element::fp32, Element::fp32, random_floats(size, 1));
  device.gradients.write(std::vector<double>(size, std::numeric_limits<float>::max()));

  device.step(0, 0);

  CHECK(device.state->not_finite == 0);
}

TEST_CASE("cuda kernels: gradients of micro-steps add up") {
  const std::size_t count = GENERATE(0, 1, 4, 7, 64, 2500), first = GENERATE(0, 1);
  CAPTURE(count, first);
  DeviceTensor values(Element::fp32, first + count), sum(Element::fp32, first + count + 1);
  const auto v = random_floats(first + count, 1), s = random_floats(first + count + 1, 2);
  values.write(std::vector<double>(v.begin(), v.end()));
  sum.write(std::vector<double>(s.begin(), s.end()));

  run_twice({sum.bytes()}, [&](auto& queue) {
    work::accumulate(count, static_cast<float*>(values.data()) + first,
                     static_cast<float*>(sum.data()) + first, queue);
  });

  std::vector<double> expected(s.begin(), s.end());
  for (std::size_t i = first; i < first + count; ++i) expected[i] = v[i] + s[i];
  CHECK(sum.read() == expected);
}

TEST_CASE("cuda kernels: the loss scale halves after a bad step and doubles after good ones") {
  const LossScaleSettings settings{
      .growth = 2, .backoff = 0.5f, .least = 256, .most = 4096, .interval = 3};
  const auto state = fresh_state(1024);
  KernelQueue queue = KernelQueue::one_way();
  const auto finish = [&](bool bad) {
    work::begin_update(state.get(), queue);
    state->not_finite = bad;
    work::finish_update(settings, state.get(), queue);
    return state->loss_scale;
  };

  CHECK(finish(false) == 1024);
  CHECK(finish(false) == 1024);
  CHECK(finish(true) == 512);  // two good steps are forgotten
  CHECK(finish(false) == 512);
  CHECK(finish(false) == 512);
  CHECK(finish(false) == 1024);
  CHECK(finish(true) == 512);
  CHECK(finish(true) == 256);
  CHECK(finish(true) == 256);  // the least
  for (int step = 0; step < 30; ++step) finish(false);
  CHECK(state->loss_scale == 4096);  // the most
  CHECK(state->skipped == 4);
}

TEST_CASE("cuda kernels: a fixed loss scale stays") {
  const auto state = fresh_state(1);
  state->not_finite = 1;
  KernelQueue queue = KernelQueue::one_way();

  work::finish_update({.interval = 0}, state.get(), queue);

  CHECK(state->loss_scale == 1);
  CHECK(state->hopeless == 1);
  CHECK(state->skipped == 1);  // it was no update
}

TEST_CASE("update: young averages count the updates that were made, not the steps") {
  RuleSettings settings = plain(OptimizerKind::adam);
  settings.ema = 0.999;
  UpdateState three{}, five{};
  three.loss_scale = five.loss_scale = 1;
  five.skipped = 2;
  const StepScalars after_three{3, 0.1, 1}, after_five{5, 0.1, 1};
  KernelQueue queue = KernelQueue::one_way();

  work::prepare_update(settings, &after_three, &three, queue);
  work::prepare_update(settings, &after_five, &five, queue);

  CHECK(three.factors.lr == five.factors.lr);
  CHECK(three.factors.root_scale == five.factors.root_scale);
  CHECK(three.factors.average_rate == five.factors.average_rate);
}
