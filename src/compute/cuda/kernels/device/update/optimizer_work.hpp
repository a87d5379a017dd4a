#pragma once
#include <cmath>

#include "compute/cuda/kernels/arguments/geometry.hpp"
#include "compute/cuda/kernels/arguments/optimizer.hpp"
#include "compute/cuda/kernels/device/head_work.hpp"
#include "compute/cuda/kernels/device/lanes.hpp"
#include "compute/cuda/kernels/device/update/update_work.hpp"

// The calls of optimizer.hpp for any queue, StreamQueue or a CPU's in tests; update_work.hpp has
// the update itself.
namespace ringtrain::compute::cuda::kernels::work {

struct BeginUpdate {
  UpdateState* state;
  constexpr void operator()(std::uint32_t) const {
    state->not_finite = 0;
    state->squares = 0;
    state->gradient_squares = 0;
  }
};

template <class Queue>
void begin_update(UpdateState* state, Queue& queue) {
  queue.items(BeginUpdate{state}, 1);
}

template <int w>
struct Accumulate {
  const float* values;
  float* sum;
  std::size_t count;
  constexpr void operator()(std::uint32_t item) const {
    for_vector<w>(item, count, [&](std::size_t at, auto n) {
      const auto v = load<n>(values + at);
      auto total = load<n>(sum + at);
      for (int i = 0; i < n; ++i) total[i] += v[i];
      store(sum + at, total);
    });
  }
};

template <class Queue>
void accumulate(std::size_t count, const float* values, float* sum, Queue& queue) {
  constexpr int w = full_width<float>;
  if (is_wide(Element::fp32, {}, {values, sum}))
    queue.items(Accumulate<w>{values, sum, count}, divide_up(count, w));
  else
    queue.items(Accumulate<1>{values, sum, count}, count);
}

// Threads that write the flag write the same value. x - x is 0 for finite x alone.
template <class T, int w>
struct MarkNotFinite {
  const T* gradients;
  UpdateState* state;
  std::size_t count;
  constexpr void operator()(std::uint32_t item) const {
    for_vector<w>(item, count, [&](std::size_t at, auto n) {
      const auto g = load_constant<n>(gradients + at);
      bool finite = true;
      for (int i = 0; i < n; ++i) finite = finite && g[i] - g[i] == 0;
      if (!finite) state->not_finite = 1;
    });
  }
};

template <class Queue>
void mark_not_finite(Element element, std::size_t count, const void* gradients, UpdateState* state,
                     Queue& queue) {
  with_type_and_width(element, is_wide(element, {}, {gradients}), [&]<class T>(T, auto w) {
    queue.items(MarkNotFinite<T, w>{static_cast<const T*>(gradients), state, count},
                divide_up(count, w));
  });
}

// In double, as on the host: powers of betas near one lose everything in fp32.
template <class Number = double>
struct PrepareUpdate {
  RuleSettings settings;
  const StepScalars* scalars;
  UpdateState* state;
  constexpr void operator()(std::uint32_t) const {
    // Of updates made: a step that was skipped made none.
    const Number step = static_cast<Number>(scalars->step) - static_cast<Number>(state->skipped);
    const bool adam = settings.kind == OptimizerKind::adam || settings.kind == OptimizerKind::adamw;
    const Number bias1 = adam ? 1 - std::pow(settings.beta1, step + 1) : 1;
    const Number bias2 = adam ? 1 - std::pow(settings.beta2, step + 1) : 1;
    const Number decay = settings.average.decay(Number(settings.ema), step);
    state->factors = {.lr = scalars->learning_rate / bias1,
                      .scale = single(scalars->gradient_scale / state->loss_scale),
                      .momentum = single(settings.momentum),
                      .mean_square_decay = single(settings.mean_square_decay),
                      .beta1 = single(settings.beta1),
                      .beta2 = single(settings.beta2),
                      .epsilon = single(settings.epsilon),
                      .root_scale = single(1 / std::sqrt(bias2)),
                      .average_rate = single(1 - decay),
                      .lookahead = settings.average.lookahead && decay != 1};
  }
  static constexpr float single(Number value) { return static_cast<float>(value); }
};

template <class Queue>
void prepare_update(const RuleSettings& settings, const StepScalars* scalars, UpdateState* state,
                    Queue& queue) {
  queue.items(PrepareUpdate<>{settings, scalars, state}, 1);
}

template <int w>
constexpr void approach(const float* values, float* average, float rate) {
  const auto v = load<w>(values);
  auto a = load<w>(average);
  for (int i = 0; i < w; ++i) a[i] += rate * (v[i] - a[i]);
  store(average, a);
}

template <int w>
struct MoveAverage {
  const float* values;
  float* average;
  float rate;
  const UpdateState* state;
  std::size_t count;
  constexpr void operator()(std::uint32_t item) const {
    if (state->not_finite) return;
    for_vector<w>(item, count,
                  [&](std::size_t at, auto n) { approach<n>(values + at, average + at, rate); });
  }
};

template <class Queue>
void move_average(std::size_t count, const float* values, float* average, float rate,
                  const UpdateState* state, Queue& queue) {
  constexpr int w = full_width<float>;
  if (is_wide(Element::fp32, {}, {values, average}))
    queue.items(MoveAverage<w>{values, average, rate, state, count}, divide_up(count, w));
  else
    queue.items(MoveAverage<1>{values, average, rate, state, count}, count);
}

template <int w>
struct MoveAverageAlike {
  float* values;
  float* average;
  const UpdateState* state;
  std::size_t count;
  constexpr void operator()(std::uint32_t item) const {
    if (state->not_finite) return;
    for_vector<w>(item, count, [&](std::size_t at, auto n) {
      approach<n>(values + at, average + at, state->factors.average_rate);
      if (state->factors.lookahead) store(values + at, load<n>(average + at));
    });
  }
};

template <class Queue>
void move_average(std::size_t count, float* values, float* average, const UpdateState* state,
                  Queue& queue) {
  constexpr int w = full_width<float>;
  if (is_wide(Element::fp32, {}, {values, average}))
    queue.items(MoveAverageAlike<w>{values, average, state, count}, divide_up(count, w));
  else
    queue.items(MoveAverageAlike<1>{values, average, state, count}, count);
}

struct FinishUpdate {
  LossScaleSettings settings;
  UpdateState* state;
  constexpr void operator()(std::uint32_t) const {
    const bool lowest = settings.interval == 0 || state->loss_scale <= settings.least;
    state->hopeless = state->not_finite && lowest;
    state->skipped += static_cast<float>(state->not_finite);
    if (settings.interval == 0) return;
    state->good_steps = state->not_finite ? 0 : state->good_steps + 1;
    if (state->not_finite) change_scale(settings.backoff);
    if (state->good_steps < static_cast<float>(settings.interval)) return;
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

/// Blocks sum what `squares` makes of a range, four neighbours a thread at a time.
template <class Squares>
struct SumSquares {
  static constexpr int width = 4;
  Squares squares;
  std::uint64_t first, end;
  double* workspace;
  std::uint32_t blocks;

  Grid launch() const { return {blocks, block_threads, block_threads * sizeof(double)}; }
  constexpr int phases() const { return 2 + folds(block_threads); }
  constexpr void operator()(int phase, std::uint32_t block, std::uint32_t thread,
                            unsigned char* shared) const {
    double* sums = reinterpret_cast<double*>(shared);
    if (phase == 0) {
      sums[thread] = sum(std::uint64_t(block) * block_threads + thread);
    } else if (phase + 1 < phases()) {
      const std::uint32_t other = fold_partner(thread, phase - 1, block_threads);
      if (other < block_threads) sums[thread] += sums[other];
    } else if (thread == 0) {
      workspace[block] = sums[0];
    }
  }

 private:
  constexpr double sum(std::uint64_t worker) const {
    double total = 0;
    const std::uint64_t stride = std::uint64_t(blocks) * block_threads * width;
    for (std::uint64_t at = first + worker * width; at < end; at += stride)
      total += squares(at, at + width < end ? at + width : end);
    return total;
  }
};

/// Adds up of(i, its segment) from `first` on.
template <class Of>
constexpr double sum_by_segment(const UpdateBuffers& buffers, std::uint64_t first,
                                std::uint64_t end, const Of& of) {
  double sum = 0;
  std::uint32_t segment = segment_of(buffers, first);
  for (std::uint64_t i = first; i < end; ++i) {
    if (i >= buffers.segments[segment].end) segment = segment_of(buffers, i);
    sum += of(i, buffers.segments[segment]);
  }
  return sum;
}

/// decay * w^2
struct DecayedSquares {
  UpdateBuffers buffers;
  constexpr double operator()(std::uint64_t first, std::uint64_t end) const {
    return sum_by_segment(buffers, first, end, [&](std::uint64_t i, const DecaySegment& segment) {
      const double w = buffers.parameters[i];
      return segment.decay * w * w;
    });
  }
};

/// g^2 of those that learn
struct GradientSquares {
  UpdateBuffers buffers;
  constexpr double operator()(std::uint64_t first, std::uint64_t end) const {
    return sum_by_segment(buffers, first, end, [&](std::uint64_t i, const DecaySegment& segment) {
      const double g = static_cast<const float*>(buffers.gradients)[i];
      return segment.rate != 0 ? g * g : 0;
    });
  }
};

template <class Squares, class Queue>
void sum_squares(const Squares& squares, Range range, double* workspace, double* sum,
                 Queue& queue) {
  SumSquares<Squares> work{squares, range.first, range.end(), workspace, 1};
  const std::uint64_t blocks = divide_up(range.count, block_threads * work.width);
  work.blocks = static_cast<std::uint32_t>(std::min<std::uint64_t>(blocks, most_update_blocks));
  queue.blocks(work, work.launch());
  const AddSquares add{workspace, work.blocks, sum};
  queue.blocks(add, add.launch());
}

template <class Queue>
void add_squares(const RuleSettings& settings, const UpdateBuffers& buffers, Range range,
                 UpdateState* state, Queue& queue) {
  if (range.count == 0 || decouples_decay(settings.kind)) return;  // such decay is no loss
  sum_squares(DecayedSquares{buffers}, range, buffers.workspace, &state->squares, queue);
}

struct ClipGradients {
  double most;
  UpdateState* state;
  constexpr void operator()(std::uint32_t) const {
    const double norm = std::sqrt(state->gradient_squares) * state->factors.scale;
    const double factor = most / (norm + clip_epsilon);
    if (factor < 1) state->factors.scale = static_cast<float>(state->factors.scale * factor);
  }
};

template <class Queue>
void clip_gradients(const RuleSettings& settings, std::size_t count, const UpdateBuffers& buffers,
                    UpdateState* state, Queue& queue) {
  if (settings.clip_norm == 0 || count == 0) return;
  expects(buffers.gradient_element == Element::fp32, "clip_gradients: of fp32 gradients");
  sum_squares(GradientSquares{buffers}, {0, count}, buffers.workspace, &state->gradient_squares,
              queue);
  queue.items(ClipGradients{settings.clip_norm, state}, 1);
}

template <class Float>
struct PutPart {
  Float* head;
  const UpdateState* state;
  constexpr void operator()(std::uint32_t) const {
    StepHead* results = results_of(head);
    const bool fits = state->squares < most_squares;  // also not, if it is no number
    results->squares = fits ? static_cast<Float>(state->squares) : most_squares;
    results->found_inf = state->not_finite ? static_cast<Float>(INFINITY) : 0;
  }
};

template <class Queue>
void put_part(float* head, const UpdateState* state, Queue& queue) {
  queue.items(PutPart<float>{head, state}, 1);
}

template <class Copy, int w>
struct Adopt {
  UpdateBuffers buffers;
  const UpdateState* state;
  constexpr void operator()(std::uint32_t item) const {
    const std::size_t at = std::size_t(item) * w;
    auto parameters = load<w>(buffers.parameters + at);
    if (buffers.average && !state->not_finite) {
      auto average = load<w>(buffers.average + at);
      for (int i = 0; i < w; ++i)
        average[i] += state->factors.average_rate * (parameters[i] - average[i]);
      store(buffers.average + at, average);
      if (state->factors.lookahead) store(buffers.parameters + at, parameters = average);
    }
    if (buffers.copy) store(static_cast<Copy*>(buffers.copy) + at, parameters);
  }
};

template <class Copy, class Queue>
void adopt_as(std::size_t count, const UpdateBuffers& buffers, const UpdateState* state,
              Queue& queue) {
  constexpr int width = full_width<float>;
  queue.items(Adopt<Copy, width>{buffers, state}, count / width);
  UpdateBuffers rest = buffers;  // fewer than four
  const std::size_t done = count / width * width;
  rest.parameters += done;
  if (rest.average) rest.average += done;
  if (rest.copy) rest.copy = static_cast<Copy*>(rest.copy) + done;
  queue.items(Adopt<Copy, 1>{rest, state}, count - done);
}

template <class Queue>
void adopt(std::size_t count, const UpdateBuffers& buffers, const UpdateState* state,
           Queue& queue) {
  if (!buffers.copy && !buffers.average) return;
  if (buffers.copy_element == Element::bf16)
    adopt_as<__nv_bfloat16>(count, buffers, state, queue);
  else
    adopt_as<__half>(count, buffers, state, queue);
}

}  // namespace ringtrain::compute::cuda::kernels::work
