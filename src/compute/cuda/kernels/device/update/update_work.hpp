#pragma once
#include <cmath>

#include "compute/cuda/kernels/arguments/geometry.hpp"
#include "compute/cuda/kernels/arguments/optimizer.hpp"
#include "compute/cuda/kernels/device/lanes.hpp"
#include "compute/cuda/kernels/device/update/trust_ratio_work.hpp"

// The update of optimizer.hpp for any queue: StreamQueue, or a CPU's in tests.

namespace ringtrain::compute::cuda::kernels::work {

/// One parameter and what belongs to it.
struct Parameter {
  float w, g, slot0, slot1;
};

/// How the parameters of a segment decay: through the gradient, or, adamw and lion, by shrinking.
/// And how fast they move.
struct SegmentDecay {
  float decay, shrink, rate;
  double square;  ///< what w^2 is multiplied by in the L2 loss
};

/// The rules, one parameter at a time.
template <class Factors>
constexpr void apply_rule(OptimizerKind rule, Parameter& p, const Factors& f,
                          const SegmentDecay& segment) {
  const float d = f.scale * p.g + segment.decay * p.w;
  switch (rule) {
    case OptimizerKind::sgd:
      p.w -= segment.rate * d;
      return;
    case OptimizerKind::momentum:
      p.slot0 = f.momentum * p.slot0 + d;
      p.w -= segment.rate * p.slot0;
      return;
    case OptimizerKind::nesterov:
      p.slot0 = f.momentum * p.slot0 + d;
      p.w -= segment.rate * (d + f.momentum * p.slot0);
      return;
    case OptimizerKind::rmsprop:
      p.slot0 = f.mean_square_decay * p.slot0 + (1 - f.mean_square_decay) * (d * d);
      p.slot1 = f.momentum * p.slot1 + segment.rate * d / std::sqrt(p.slot0 + f.epsilon);
      p.w -= p.slot1;
      return;
    case OptimizerKind::adam:
    case OptimizerKind::adamw:
      p.slot0 = f.beta1 * p.slot0 + (1 - f.beta1) * d;
      p.slot1 = f.beta2 * p.slot1 + (1 - f.beta2) * (d * d);
      p.w = segment.shrink * p.w -
            segment.rate * p.slot0 / (std::sqrt(p.slot1) * f.root_scale + f.epsilon);
      return;
    case OptimizerKind::lars:
      p.slot0 = f.momentum * p.slot0 + segment.rate * d;
      p.w -= p.slot0;
      return;
    case OptimizerKind::lion: {
      const float way = f.beta1 * p.slot0 + (1 - f.beta1) * d;
      const float sign = way > 0 ? 1.0f : way < 0 ? -1.0f : 0.0f;
      p.w = segment.shrink * p.w - segment.rate * sign;
      p.slot0 = f.beta2 * p.slot0 + (1 - f.beta2) * d;
      return;
    }
  }
}

constexpr std::uint32_t segment_of(const UpdateBuffers& buffers, std::uint64_t index) {
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

/// Updates aligned groups of four parameters, the first and last perhaps in part; blocks also sum
/// decay * w^2 over what they updated.
template <class Gradient, class Copy>
struct Update {
  static constexpr int width = 4;
  static constexpr std::uint32_t most_blocks = most_update_blocks;
  OptimizerKind rule;
  UpdateBuffers buffers;
  std::uint64_t first, end;  // of the range
  const StepScalars* scalars;
  const UpdateState* state;
  std::uint32_t blocks;

  std::uint64_t groups() const { return (end + width - 1) / width - first / width; }
  Grid launch() const { return {blocks, block_threads, block_threads * sizeof(double)}; }
  constexpr int phases() const { return buffers.workspace ? 2 + folds(block_threads) : 1; }
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
    std::uint32_t segment = segment_of(buffers, at < first ? first : at);
    SegmentDecay decay = decay_of(segment);
    for (int i = 0; i < width; ++i) {
      const std::uint64_t index = at + i;
      if (index < first || index >= end) continue;
      if (index >= buffers.segments[segment].end)
        decay = decay_of(segment = segment_of(buffers, index));
      if (!whole) load_one(index, group[i]);
      squares += decay.square * group[i].w * group[i].w;
      apply_rule(rule, group[i], state->factors, decay);
      if (!whole) store_one(index, group[i]);
    }
    if (whole) store_group(at, group);
    return squares;
  }
  template <class Number = double>
  constexpr SegmentDecay decay_of(std::uint32_t segment) const {
    const Number decay = buffers.segments[segment].decay, factor = buffers.segments[segment].rate;
    const Number ratio = rule == OptimizerKind::lars ? ratios_in(buffers)[segment] : 1;
    const float rate = static_cast<float>(state->factors.lr * factor * ratio);
    if (!decouples_decay(rule)) return {static_cast<float>(decay), 1, rate, decay};
    return {0, static_cast<float>(1 - scalars->learning_rate * factor * decay), rate, 0};
  }
  constexpr void load_group(std::uint64_t at, Parameter* group) const {
    const auto w = load<width>(buffers.parameters + at);
    const auto g = load<width>(static_cast<const Gradient*>(buffers.gradients) + at);
    Lanes<width> slot0{}, slot1{};
    if (buffers.slot0) slot0 = load<width>(buffers.slot0 + place(at));
    if (buffers.slot1) slot1 = load<width>(buffers.slot1 + place(at));
    for (int i = 0; i < width; ++i) group[i] = {w[i], g[i], slot0[i], slot1[i]};
  }
  constexpr void store_group(std::uint64_t at, const Parameter* group) const {
    Lanes<width> w{}, slot0{}, slot1{};
    for (int i = 0; i < width; ++i) {
      w[i] = group[i].w;
      slot0[i] = group[i].slot0;
      slot1[i] = group[i].slot1;
    }
    if (buffers.average) {
      auto average = load<width>(buffers.average + at);
      for (int i = 0; i < width; ++i) average[i] = averaged(average[i], w[i]);
      store(buffers.average + at, average);
      if (state->factors.lookahead) w = average;
    }
    store(buffers.parameters + at, w);
    if (buffers.slot0) store(buffers.slot0 + place(at), slot0);
    if (buffers.slot1) store(buffers.slot1 + place(at), slot1);
    if (buffers.copy) store(static_cast<Copy*>(buffers.copy) + at, w);
  }
  constexpr void load_one(std::uint64_t at, Parameter& p) const {
    p.w = buffers.parameters[at];
    p.g = static_cast<float>(static_cast<const Gradient*>(buffers.gradients)[at]);
    if (buffers.slot0) p.slot0 = buffers.slot0[place(at)];
    if (buffers.slot1) p.slot1 = buffers.slot1[place(at)];
  }
  constexpr void store_one(std::uint64_t at, Parameter p) const {
    if (buffers.average) {
      buffers.average[at] = averaged(buffers.average[at], p.w);
      if (state->factors.lookahead) p.w = buffers.average[at];
    }
    buffers.parameters[at] = p.w;
    if (buffers.slot0) buffers.slot0[place(at)] = p.slot0;
    if (buffers.slot1) buffers.slot1[place(at)] = p.slot1;
    if (buffers.copy) static_cast<Copy*>(buffers.copy)[at] = static_cast<Copy>(p.w);
  }
  constexpr std::uint64_t place(std::uint64_t at) const { return at - buffers.slots_from; }
  constexpr float averaged(float average, float w) const {
    return average + state->factors.average_rate * (w - average);
  }
};

/// One block adds what blocks left to a sum of squares.
struct AddSquares {
  const double* parts;
  std::uint32_t count;
  double* squares;

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
      *squares += sums[0];
    }
  }
};

template <class Gradient, class Copy, class Queue>
void update_as(OptimizerKind rule, const UpdateBuffers& buffers, Range range,
               const StepScalars* scalars, UpdateState* state, Queue& queue) {
  Update<Gradient, Copy> work{rule, buffers, range.first, range.end(), scalars, state, 1};
  const std::uint64_t blocks = divide_up(work.groups(), block_threads);
  work.blocks = static_cast<std::uint32_t>(std::min<std::uint64_t>(blocks, work.most_blocks));
  queue.blocks(work, work.launch());
  if (!buffers.workspace) return;
  const AddSquares sum{buffers.workspace, work.blocks, &state->squares};
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
    update_as<Gradient, Copy>(settings.kind, buffers, range, scalars, state, queue);
  };
  if (gradient == Element::fp16) return run(__half{}, __half{});
  if (gradient == Element::bf16) return run(__nv_bfloat16{}, __nv_bfloat16{});
  if (copy == Element::bf16) return run(float{}, __nv_bfloat16{});
  run(float{}, __half{});
}

}  // namespace ringtrain::compute::cuda::kernels::work
