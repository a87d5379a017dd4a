#pragma once
#include <cmath>
#include <limits>

#include "compute/cuda/kernels/arguments/geometry.hpp"
#include "compute/cuda/kernels/arguments/softmax.hpp"
#include "compute/cuda/kernels/device/lanes.hpp"

// The loss of softmax.hpp for any queue: StreamQueue, or a CPU's in tests.
namespace ringtrain::compute::cuda::kernels::work {

/// A block a sample. Phases: each thread's highest logit; folds of it; each thread's sums over its
/// classes; folds of those; the results.
template <class T>
struct SampleSoftmax {
  static constexpr std::uint32_t threads = 128;
  SoftmaxOperands o;

  Grid launch() const { return {small(o.batch), threads, rows * threads * sizeof(float)}; }
  constexpr int phases() const { return 3 + 2 * folds(threads); }
  constexpr void operator()(int phase, std::uint32_t sample, std::uint32_t thread,
                            unsigned char* shared) const {
    float* values = reinterpret_cast<float*>(shared);
    const int rounds = folds(threads);
    if (phase == 0)
      values[thread] = highest_of(sample, thread);
    else if (phase <= rounds)
      fold_highest(phase - 1, thread, values);
    else if (phase == rounds + 1)
      accumulate(sample, thread, values);
    else if (phase < 2 * rounds + 2)
      fold_sums(phase - rounds - 2, thread, values);
    else
      write(sample, thread, values);
  }

 private:
  // What lies in shared memory, `threads` of each.
  enum Row { highest, exponentials, targets, dots, better, rows };

  constexpr const T* row(std::uint32_t sample) const {
    return static_cast<const T*>(o.logits) + std::size_t(sample) * o.pitch;
  }
  constexpr const Target& target_of(std::uint32_t sample) const { return o.samples[sample].target; }
  constexpr float smoothed(const Target& target, int c) const {
    return o.smoothing / static_cast<float>(o.classes) + (1 - o.smoothing) * target.share_of(c);
  }
  constexpr float wanted(const Target& target, int c) const {
    return o.class_weights ? o.class_weights[c] * smoothed(target, c) : smoothed(target, c);
  }
  // Of a class on its own: -log of a sigmoid, or of what is left, and its derivative.
  constexpr float binary_loss(const Target& target, int c, float logit) const {
    const float small = std::log1p(std::exp(logit < 0 ? logit : -logit));
    return binary_weight(c) * (small + (logit > 0 ? logit : 0) - binary_wanted(target, c) * logit);
  }
  constexpr float binary_gradient(const Target& target, int c, float logit) const {
    return binary_weight(c) * (1 / (1 + std::exp(-logit)) - binary_wanted(target, c));
  }
  constexpr float binary_wanted(const Target& target, int c) const {
    return o.how.target(smoothed(target, c));
  }
  constexpr float binary_weight(int c) const {
    return o.how.factor(o.classes) * (o.class_weights ? o.class_weights[c] : 1);
  }
  // Without weights a sample's targets sum to one.
  constexpr float all_wanted(const float* values) const {
    return o.class_weights ? values[targets * threads] : 1;
  }

  constexpr float highest_of(std::uint32_t sample, std::uint32_t thread) const {
    float best = -std::numeric_limits<float>::infinity();
    for (int c = static_cast<int>(thread); c < o.classes; c += threads) {
      const float logit = static_cast<float>(row(sample)[c]);
      best = best < logit ? logit : best;
    }
    return best;
  }
  constexpr void fold_highest(int round, std::uint32_t thread, float* values) const {
    const std::uint32_t other = fold_partner(thread, round, threads);
    if (other < threads && values[thread] < values[other]) values[thread] = values[other];
  }
  // Among equal logits the lower class is the better one; one that is no number is never right.
  constexpr void accumulate(std::uint32_t sample, std::uint32_t thread, float* values) const {
    const Target target = target_of(sample);
    const int label = target.label;
    const float top = values[0], right = label < 0 ? 0 : static_cast<float>(row(sample)[label]);
    float sum = 0, all = 0, dot = 0, above = 0;
    for (int c = static_cast<int>(thread); c < o.classes; c += threads) {
      const float logit = static_cast<float>(row(sample)[c]);
      sum += std::exp(logit - top);
      const float part = wanted(target, c);
      all += part;
      dot += o.binary ? binary_loss(target, c, logit) : part * (logit - top);
      above += logit < right || (logit == right && c >= label) ? 0.f : 1.f;
    }
    values[exponentials * threads + thread] = sum;
    values[targets * threads + thread] = all;
    values[dots * threads + thread] = dot;
    values[better * threads + thread] = above;
  }
  constexpr void fold_sums(int round, std::uint32_t thread, float* values) const {
    const std::uint32_t other = fold_partner(thread, round, threads);
    if (other == threads) return;
    for (int row = exponentials; row <= better; ++row)
      values[row * threads + thread] += values[row * threads + other];
  }
  constexpr void write(std::uint32_t sample, std::uint32_t thread, const float* values) const {
    const Target target = target_of(sample);
    if (thread == 0) o.workspace[sample] = result(target.label, values);
    if (!o.dlogits) return;
    T* to = static_cast<T*>(o.dlogits) + std::size_t(sample) * o.pitch;
    const float factor = o.weight * *o.sample_weight * (o.loss_scale ? *o.loss_scale : 1);
    for (int c = static_cast<int>(thread); c < o.pitch; c += threads) {
      float gradient = 0;
      if (target.label >= 0 && c < o.classes) {
        const float logit = static_cast<float>(row(sample)[c]), e = std::exp(logit - values[0]);
        gradient = factor * (o.binary ? binary_gradient(target, c, logit)
                                      : all_wanted(values) * e / values[exponentials * threads] -
                                            wanted(target, c));
      }
      to[c] = static_cast<T>(gradient);
    }
  }
  // The loss is sum of target * (log(sum) - (logit - top)).
  constexpr SampleLoss result(int label, const float* values) const {
    if (label < 0) return {};
    const float loss = o.binary ? values[dots * threads]
                                : all_wanted(values) * std::log(values[exponentials * threads]) -
                                      values[dots * threads];
    const float above = values[better * threads];
    if (!o.counts) return {o.weight * loss, 0, 0, 0};
    return {o.weight * loss, 1, above < 1, above < 5};
  }
};

/// One block adds up the samples' results.
struct AddLosses {
  std::uint32_t samples;
  const SampleLoss* from;
  LossTotals* totals;

  Grid launch() const { return {1, block_threads, block_threads * sizeof(LossTotals)}; }
  constexpr int phases() const { return 2 + folds(block_threads); }
  template <class Byte>
  constexpr void operator()(int phase, std::uint32_t, std::uint32_t thread, Byte* shared) const {
    LossTotals* sums = reinterpret_cast<LossTotals*>(shared);
    if (phase == 0) {
      sums[thread] = {};
      for (std::uint32_t i = thread; i < samples; i += block_threads) add(sums[thread], from[i]);
    } else if (phase + 1 < phases()) {
      const std::uint32_t other = fold_partner(thread, phase - 1, block_threads);
      if (other < block_threads) add(sums[thread], sums[other]);
    } else if (thread == 0) {
      add(*totals, sums[0]);
    }
  }

 private:
  template <class Part>
  static constexpr void add(LossTotals& sum, const Part& part) {
    sum.loss += part.loss;
    sum.samples += part.samples;
    sum.top1 += part.top1;
    sum.top5 += part.top5;
  }
};

template <class Queue>
void softmax_cross_entropy(const SoftmaxOperands& o, Queue& queue) {
  expects(o.pitch >= o.classes, "softmax_cross_entropy: rows hold all classes");
  with_type(o.element, [&]<class T>(T) {
    const SampleSoftmax<T> work{o};
    queue.blocks(work, work.launch());
  });
  const AddLosses sum{small(o.batch), o.workspace, o.totals};
  queue.blocks(sum, sum.launch());
}

}  // namespace ringtrain::compute::cuda::kernels::work
