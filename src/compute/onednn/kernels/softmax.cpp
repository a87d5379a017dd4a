#include <algorithm>
#include <cmath>
#include <functional>
#include <span>

#include "compute/onednn/plan.hpp"

namespace ringtrain::compute::onednn {
namespace {

// What one sample adds to the result.
struct SampleLoss {
  double loss;
  int better;  // classes ahead of the label; -1 for a place that pads the batch
};

// Of a sigmoid for each class. Writes the gradient where `dlogit` is not null.
template <class T>
double binary_cross_entropy(const T* logit, T* dlogit, int classes, const Target& target,
                            const SoftmaxCrossEntropy& step, double scale) {
  const double smoothing = step.smoothing, factor = step.binary->sums ? 1 : 1.0 / classes;
  double loss = 0;
  for (int c = 0; c < classes; ++c) {
    const double weight = factor * (step.class_weights.empty() ? 1 : step.class_weights[c]);
    const double share = smoothing / classes + (1 - smoothing) * target.share_of(c);
    const double wanted = step.binary->threshold > 0 ? share > step.binary->threshold : share;
    const double z = logit[c], small = std::exp(-std::abs(z));
    loss += weight * (std::log1p(small) + std::max(z, 0.0) - wanted * z);
    const double sigmoid = (z < 0 ? small : 1) / (1 + small);
    if (dlogit) dlogit[c] = static_cast<T>(static_cast<float>(scale * weight * (sigmoid - wanted)));
  }
  return loss;
}

// Writes the unscaled gradient where `dlogit` is not null.
template <class T>
SampleLoss cross_entropy(const T* logit, T* dlogit, int classes, const Target& target,
                         const SoftmaxCrossEntropy& step, double scale) {
  const bool weighted = !step.class_weights.empty();
  const auto weight = [&](int c) { return weighted ? double(step.class_weights[c]) : 1.; };
  const auto weighted_logit = [&](int c) { return weight(c) * double(logit[c]); };
  const int label = target.label, other = target.other;
  const double smoothing = step.smoothing;
  const double highest = *std::max_element(logit, logit + classes, std::less<float>());
  double sum = 0, logits = 0, weights = 0;
  SampleLoss result{0, 0};
  for (int c = 0; c < classes; ++c) {
    sum += std::exp(logit[c] - highest);
    logits += weighted_logit(c);
    weights += weight(c);
    // Among equal logits the lower class is the better one; one that is no number is never right.
    result.better += !(logit[c] < logit[label] || (logit[c] == logit[label] && c >= label));
  }
  const double normaliser = highest + std::log(sum);
  const double own_weight = std::lerp(weight(other), weight(label), target.weight);
  // of all classes together
  const double wanted = weighted ? (1 - smoothing) * own_weight + smoothing / classes * weights : 1;
  const double own_logit = std::lerp(weighted_logit(other), weighted_logit(label), target.weight);
  result.loss = wanted * normaliser - (1 - smoothing) * own_logit - smoothing / classes * logits;
  if (step.binary) {
    result.loss = binary_cross_entropy(logit, dlogit, classes, target, step, scale);
    return result;
  }
  if (dlogit == nullptr) return result;
  for (int c = 0; c < classes; ++c) {
    const double share = smoothing / classes + (1 - smoothing) * target.share_of(c);
    dlogit[c] =
        static_cast<float>(scale * (wanted * std::exp(logit[c] - normaliser) - weight(c) * share));
  }
  return result;
}

// In the order of the samples.
void add_up(std::span<const SampleLoss> samples, const SoftmaxCrossEntropy& step,
            StepResult& result) {
  for (const SampleLoss& sample : samples) {
    if (sample.better < 0) continue;
    result.loss += step.weight * sample.loss;
    if (!step.counts) continue;
    ++result.samples;
    result.top1 += sample.better < 1;
    result.top5 += sample.better < 5;
  }
}

}  // namespace

template <>
Action plan(const SoftmaxCrossEntropy& step, Planner& planner) {
  const Tensor logits = planner.tensor(step.logits);
  const Tensor dlogits = step.dlogits == no_tensor ? Tensor{} : planner.tensor(step.dlogits);
  const Scratch samples = planner.scratch(logits.shape.batch * sizeof(SampleLoss));
  return with_type(logits.element, [&]<class T>(T) -> Action {
    return [=, threads = planner.threads()](const Frame& frame) {
      auto* sample = samples.in<SampleLoss>(frame);
      for_each_item(threads, logits.shape.batch, [&](std::size_t n) {
        T* dlogit = dlogits.data ? dlogits.image_at<T>(n) : nullptr;
        const Target& target = frame.batch.samples[n].target;
        if (dlogit) std::fill_n(dlogit, dlogits.image(), T(0));
        sample[n] = target.label < 0
                        ? SampleLoss{0, -1}
                        : cross_entropy(logits.image_at<T>(n), dlogit, logits.shape.channels,
                                        target, step, step.weight * frame.sample_weight);
      });
      add_up(std::span(sample, logits.shape.batch), step, frame.result);
    };
  });
}

}  // namespace ringtrain::compute::onednn
