#pragma once
#include <cmath>

#include "compute/cuda/kernels/geometry.hpp"
#include "compute/cuda/kernels/lanes.hpp"
#include "compute/cuda/kernels/optimizer.hpp"
#include "compute/cuda/kernels/update_rule.hpp"

// The calls of optimizer.hpp for any queue: StreamQueue, or a CPU's in tests.
namespace ringtrain::cuda::kernels::work {

struct BeginUpdate {
  UpdateState* state;
  constexpr void operator()(std::uint32_t) const {
    state->not_finite = 0;
    state->squares = 0;
  }
};

template <class Queue>
void begin_update(UpdateState* state, Queue& queue) {
  queue.items(BeginUpdate{state}, 1);
}

// Threads that write the flag write the same value. x - x is 0 for finite x alone.
template <class T, int w>
struct MarkNotFinite {
  const T* gradients;
  UpdateState* state;
  constexpr void operator()(std::uint32_t item) const {
    const auto g = load<w>(gradients + std::size_t(item) * w);
    bool finite = true;
    for (int i = 0; i < w; ++i) finite = finite && g[i] - g[i] == 0;
    if (!finite) state->not_finite = 1;
  }
};

template <class Queue>
void mark_not_finite(Element element, std::size_t count, const void* gradients, UpdateState* state,
                     Queue& queue) {
  with_type_and_width(element, is_wide(element, {count}, {gradients}), [&]<class T>(T, auto w) {
    queue.items(MarkNotFinite<T, w>{static_cast<const T*>(gradients), state}, count / w);
  });
}

// In double, as on the host: powers of betas near one lose everything in fp32.
template <class Number = double>
struct PrepareUpdate {
  RuleSettings settings;
  const StepScalars* scalars;
  UpdateState* state;
  constexpr void operator()(std::uint32_t) const {
    const Number step = static_cast<Number>(scalars->step), young = (1 + step) / (10 + step);
    const bool adam = settings.rule == Rule::adam || settings.rule == Rule::adamw;
    const Number bias1 = adam ? 1 - std::pow(settings.beta1, step + 1) : 1;
    const Number bias2 = adam ? 1 - std::pow(settings.beta2, step + 1) : 1;
    const Number decay = settings.ema < young ? settings.ema : young;
    state->factors = {.scale = single(scalars->gradient_scale / state->loss_scale),
                      .lr = single(scalars->learning_rate / bias1),
                      .momentum = single(settings.momentum),
                      .mean_square_decay = single(settings.mean_square_decay),
                      .beta1 = single(settings.beta1),
                      .beta2 = single(settings.beta2),
                      .epsilon = single(settings.epsilon),
                      .root_scale = single(1 / std::sqrt(bias2)),
                      .average_rate = single(1 - decay)};
  }
  static constexpr float single(Number value) { return static_cast<float>(value); }
};

template <class Queue>
void prepare_update(const RuleSettings& settings, const StepScalars* scalars, UpdateState* state,
                    Queue& queue) {
  queue.items(PrepareUpdate<>{settings, scalars, state}, 1);
}

/// Updates aligned groups of four parameters, the first and last perhaps in part; blocks also sum
/// decay * w^2 over what they updated.
template <class Gradient, class Copy>
struct Update {
  static constexpr int width = 4;
  static constexpr std::uint32_t most_blocks = 1024;
  Rule rule;
  UpdateBuffers buffers;
  std::uint64_t first, end;  // of the range
  const StepScalars* scalars;
  const UpdateState* state;
  std::uint32_t blocks;

  std::uint64_t groups() const { return (end + width - 1) / width - first / width; }
  Grid launch() const { return {blocks, block_threads, block_threads * sizeof(double)}; }
  constexpr int phases() const { return 2 + folds(block_threads); }
  constexpr void operator()(int phase, std::uint32_t block, std::uint32_t thread,
                            unsigned char* shared) const {
    double* squares = reinterpret_cast<double*>(shared);
    if (phase == 0) {
      squares[thread] = update_groups(std::uint64_t(block) * block_threads + thread);
    } else if (phase + 1 < phases()) {
      const std::uint32_t other = fold_partner(thread, phase - 1, block_threads);
      if (other < block_threads) squares[thread] += squares[other];
    } else if (thread == 0) {
      buffers.workspace[block] = squares[0];
    }
  }

 private:
  constexpr double update_groups(std::uint64_t worker) const {
    if (state->not_finite) return 0;
    double squares = 0;
    const std::uint64_t stride = std::uint64_t(blocks) * block_threads;
    for (std::uint64_t group = first / width + worker; group * width < end; group += stride)
      squares += update_group(group * width);
    return squares;
  }
  // Segments change seldom: a group looks its own up, and goes on from there.
  constexpr double update_group(std::uint64_t at) const {
    Parameter group[width] = {};
    const bool whole = at >= first && at + width <= end;
    if (whole) load_group(at, group);
    double squares = 0;
    std::uint32_t segment = segment_of(at < first ? first : at);
    SegmentDecay decay = decay_of(segment);
    for (int i = 0; i < width; ++i) {
      const std::uint64_t index = at + i;
      if (index < first || index >= end) continue;
      if (index >= buffers.segments[segment].end) decay = decay_of(segment = segment_of(index));
      if (!whole) load_one(index, group[i]);
      squares += decay.square * group[i].w * group[i].w;
      apply_rule(rule, group[i], state->factors, decay.decay, decay.shrink);
      if (!whole) store_one(index, group[i]);
    }
    if (whole) store_group(at, group);
    return squares;
  }
  constexpr std::uint32_t segment_of(std::uint64_t index) const {
    std::uint32_t low = 0, high = buffers.segment_count - 1;
    while (low < high) {
      const std::uint32_t middle = (low + high) / 2;
      if (buffers.segments[middle].end > index)
        high = middle;
      else
        low = middle + 1;
    }
    return low;
  }
  template <class Number = double>
  constexpr SegmentDecay decay_of(std::uint32_t segment) const {
    const Number decay = buffers.segments[segment].decay;
    if (rule != Rule::adamw) return {static_cast<float>(decay), 1, decay};
    return {0, static_cast<float>(1 - scalars->learning_rate * decay), 0};
  }
  constexpr void load_group(std::uint64_t at, Parameter* group) const {
    const auto w = load<width>(buffers.parameters + at);
    const auto g = load<width>(static_cast<const Gradient*>(buffers.gradients) + at);
    Lanes<width> slot0{}, slot1{};
    if (buffers.slot0) slot0 = load<width>(buffers.slot0 + at);
    if (buffers.slot1) slot1 = load<width>(buffers.slot1 + at);
    for (int i = 0; i < width; ++i) group[i] = {w[i], g[i], slot0[i], slot1[i]};
  }
  constexpr void store_group(std::uint64_t at, const Parameter* group) const {
    Lanes<width> w{}, slot0{}, slot1{};
    for (int i = 0; i < width; ++i) {
      w[i] = group[i].w;
      slot0[i] = group[i].slot0;
      slot1[i] = group[i].slot1;
    }
    store(buffers.parameters + at, w);
    if (buffers.slot0) store(buffers.slot0 + at, slot0);
    if (buffers.slot1) store(buffers.slot1 + at, slot1);
    if (buffers.copy) store(static_cast<Copy*>(buffers.copy) + at, w);
    if (!buffers.average) return;
    auto average = load<width>(buffers.average + at);
    for (int i = 0; i < width; ++i) average[i] = averaged(average[i], w[i]);
    store(buffers.average + at, average);
  }
  constexpr void load_one(std::uint64_t at, Parameter& p) const {
    p.w = buffers.parameters[at];
    p.g = static_cast<float>(static_cast<const Gradient*>(buffers.gradients)[at]);
    if (buffers.slot0) p.slot0 = buffers.slot0[at];
    if (buffers.slot1) p.slot1 = buffers.slot1[at];
  }
  constexpr void store_one(std::uint64_t at, const Parameter& p) const {
    buffers.parameters[at] = p.w;
    if (buffers.slot0) buffers.slot0[at] = p.slot0;
    if (buffers.slot1) buffers.slot1[at] = p.slot1;
    if (buffers.copy) static_cast<Copy*>(buffers.copy)[at] = static_cast<Copy>(p.w);
    if (buffers.average) buffers.average[at] = averaged(buffers.average[at], p.w);
  }
  constexpr float averaged(float average, float w) const {
    return average + state->factors.average_rate * (w - average);
  }
};

/// One block adds what the blocks of an update left to the step's squares.
struct AddSquares {
  const double* parts;
  std::uint32_t count;
  UpdateState* state;

  Grid launch() const { return {1, block_threads, block_threads * sizeof(double)}; }
  constexpr int phases() const { return 2 + folds(block_threads); }
  template <class Byte>
  constexpr void operator()(int phase, std::uint32_t, std::uint32_t thread, Byte* shared) const {
    double* sums = reinterpret_cast<double*>(shared);
    if (phase == 0) {
      sums[thread] = 0;
      for (std::uint32_t i = thread; i < count; i += block_threads) sums[thread] += parts[i];
    } else if (phase + 1 < phases()) {
      const std::uint32_t other = fold_partner(thread, phase - 1, block_threads);
      if (other < block_threads) sums[thread] += sums[other];
    } else if (thread == 0) {
      state->squares += sums[0];
    }
  }
};

template <class Gradient, class Copy, class Queue>
void update_as(Rule rule, const UpdateBuffers& buffers, Range range, const StepScalars* scalars,
               UpdateState* state, Queue& queue) {
  Update<Gradient, Copy> work{rule, buffers, range.first, range.end(), scalars, state, 1};
  const std::uint64_t blocks = divide_up(work.groups(), block_threads);
  work.blocks = static_cast<std::uint32_t>(std::min<std::uint64_t>(blocks, work.most_blocks));
  queue.blocks(work, work.launch());
  const AddSquares sum{buffers.workspace, work.blocks, state};
  queue.blocks(sum, sum.launch());
}

template <class Queue>
void update(const RuleSettings& settings, const UpdateBuffers& buffers, Range range,
            const StepScalars* scalars, UpdateState* state, Queue& queue) {
  if (range.count == 0) return;
  const Element gradient = buffers.gradient_element;
  const Element copy = buffers.copy ? buffers.copy_element : gradient;
  expects(gradient == Element::fp32 || copy == gradient,
          "update: 16-bit gradients are of the copy's type");
  const auto run = [&]<class Gradient, class Copy>(Gradient, Copy) {
    update_as<Gradient, Copy>(settings.rule, buffers, range, scalars, state, queue);
  };
  if (gradient == Element::fp16) return run(__half{}, __half{});
  if (gradient == Element::bf16) return run(__nv_bfloat16{}, __nv_bfloat16{});
  if (copy == Element::bf16) return run(float{}, __nv_bfloat16{});
  run(float{}, __half{});
}

struct MoveAverage {
  const float* values;
  float* average;
  float rate;
  const UpdateState* state;
  constexpr void operator()(std::uint32_t i) const {
    if (!state->not_finite) average[i] += rate * (values[i] - average[i]);
  }
};

template <class Queue>
void move_average(std::size_t count, const float* values, float* average, float rate,
                  const UpdateState* state, Queue& queue) {
  queue.items(MoveAverage{values, average, rate, state}, count);
}

struct FinishUpdate {
  LossScaleSettings settings;
  UpdateState* state;
  constexpr void operator()(std::uint32_t) const {
    state->skipped += state->not_finite;
    if (settings.interval == 0) return;
    state->good_steps = state->not_finite ? 0 : state->good_steps + 1;
    if (state->not_finite) change_scale(settings.backoff);
    if (state->good_steps < settings.interval) return;
    state->good_steps = 0;
    change_scale(settings.growth);
  }
  constexpr void change_scale(float factor) const {
    const float scale = state->loss_scale * factor;
    state->loss_scale = scale < settings.least  ? settings.least
                        : scale > settings.most ? settings.most
                                                : scale;
  }
};

template <class Queue>
void finish_update(const LossScaleSettings& settings, UpdateState* state, Queue& queue) {
  queue.items(FinishUpdate{settings, state}, 1);
}

}  // namespace ringtrain::cuda::kernels::work
