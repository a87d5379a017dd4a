#pragma once
#include <cmath>

#include "compute/cuda/kernels/arguments/geometry.hpp"
#include "compute/cuda/kernels/arguments/optimizer.hpp"
#include "compute/cuda/kernels/device/lanes.hpp"

// The trust ratios of lars for any queue: StreamQueue, or a CPU's in tests.
namespace ringtrain::compute::cuda::kernels::work {

// UpdateBuffers::workspace holds the update's partial sums, a ratio for each segment, and for each
// segment `tensor_parts` sums of w^2 and g^2.
inline constexpr std::uint32_t most_update_blocks = 1024;
inline constexpr std::uint32_t tensor_parts = 32;

constexpr double* ratios_in(const UpdateBuffers& buffers) {
  return buffers.workspace + most_update_blocks;
}
constexpr double* squares_in(const UpdateBuffers& buffers, std::uint32_t part) {
  return ratios_in(buffers) + buffers.segment_count + std::size_t(part) * 2;
}

/// `tensor_parts` blocks sum the squares of each scaled segment's parameters and gradients.
template <class Gradient>
struct SumTensors {
  UpdateBuffers buffers;

  Grid launch() const {
    return {buffers.segment_count * tensor_parts, block_threads,
            2 * block_threads * sizeof(double)};
  }
  constexpr int phases() const { return 2 + folds(block_threads); }
  constexpr void operator()(int phase, std::uint32_t block, std::uint32_t thread,
                            unsigned char* shared) const {
    double* sums = reinterpret_cast<double*>(shared);
    if (phase == 0) {
      sum(block, thread, sums + 2 * thread);
    } else if (phase + 1 < phases()) {
      const std::uint32_t other = fold_partner(thread, phase - 1, block_threads);
      if (other == block_threads) return;
      sums[2 * thread] += sums[2 * other];
      sums[2 * thread + 1] += sums[2 * other + 1];
    } else if (thread < 2) {
      squares_in(buffers, block)[thread] = sums[thread];
    }
  }

 private:
  template <class Number>
  constexpr void sum(std::uint32_t block, std::uint32_t thread, Number* sums) const {
    const std::uint32_t segment = block / tensor_parts, part = block % tensor_parts;
    sums[0] = sums[1] = 0;
    if (!buffers.segments[segment].scaled) return;
    const std::uint64_t first = segment == 0 ? 0 : buffers.segments[segment - 1].end;
    constexpr std::uint64_t stride = std::uint64_t(tensor_parts) * block_threads;
    for (std::uint64_t i = first + part * block_threads + thread; i < buffers.segments[segment].end;
         i += stride) {
      const Number w = buffers.parameters[i];
      const Number g = static_cast<float>(static_cast<const Gradient*>(buffers.gradients)[i]);
      sums[0] += w * w;
      sums[1] += g * g;
    }
  }
};

/// The ratio of each segment: 1 of those that are not scaled.
template <class Number = double>
struct TrustRatios {
  UpdateBuffers buffers;
  Number trust_coefficient;
  const UpdateState* state;

  constexpr void operator()(std::uint32_t segment) const {
    Number w = 0, g = 0;
    for (std::uint32_t part = 0; part < tensor_parts; ++part) {
      const Number* squares = squares_in(buffers, segment * tensor_parts + part);
      w += squares[0];
      g += squares[1];
    }
    w = std::sqrt(w);
    g = std::sqrt(g) * state->factors.scale;
    const Number decay = buffers.segments[segment].decay;
    ratios_in(buffers)[segment] = w > 0 && g > 0 ? trust_coefficient * w / (g + decay * w) : 1;
  }
};

template <class Gradient, class Queue>
void measure_tensors_as(const RuleSettings& settings, const UpdateBuffers& buffers,
                        const UpdateState* state, Queue& queue) {
  const SumTensors<Gradient> sums{buffers};
  queue.blocks(sums, sums.launch());
  queue.items(TrustRatios<>{buffers, settings.trust_coefficient, state}, buffers.segment_count);
}

template <class Queue>
void measure_tensors(const RuleSettings& settings, const UpdateBuffers& buffers,
                     const UpdateState* state, Queue& queue) {
  if (settings.kind != OptimizerKind::lars) return;
  if (buffers.gradient_element == Element::fp16)
    measure_tensors_as<__half>(settings, buffers, state, queue);
  else if (buffers.gradient_element == Element::bf16)
    measure_tensors_as<__nv_bfloat16>(settings, buffers, state, queue);
  else
    measure_tensors_as<float>(settings, buffers, state, queue);
}

}  // namespace ringtrain::compute::cuda::kernels::work
