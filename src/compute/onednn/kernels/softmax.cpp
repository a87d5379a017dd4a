#include <algorithm>
#include <cmath>
#include <functional>
#include <span>

#include "compute/onednn/plan.hpp"

namespace ringtrain::compute::onednn {
namespace {

// What one sample adds to the result.
struct Sample {
  double loss;
  int better;  // classes ahead of the label; -1 for a place that pads the batch
};

// Writes the unscaled gradient where `dlogit` is not null.
template <class T>
Sample cross_entropy(const T* logit, T* dlogit, int classes, int label, double smoothing,
                     double scale) {
  const double highest = *std::max_element(logit, logit + classes, std::less<float>());
  double sum = 0, logits = 0;
  Sample result{0, 0};
  for (int c = 0; c < classes; ++c) {
    sum += std::exp(logit[c] - highest);
    logits += logit[c];
    // Among equal logits the lower class is the better one; one that is no number is never right.
    result.better += !(logit[c] < logit[label] || (logit[c] == logit[label] && c >= label));
  }
  const double normaliser = highest + std::log(sum);
  result.loss = normaliser - (1 - smoothing) * logit[label] - smoothing / classes * logits;
  if (dlogit == nullptr) return result;
  for (int c = 0; c < classes; ++c) {
    const double target = smoothing / classes + (c == label ? 1 - smoothing : 0);
    dlogit[c] = static_cast<float>(scale * (std::exp(logit[c] - normaliser) - target));
  }
  return result;
}

// In the order of the samples.
void add_up(std::span<const Sample> samples, const SoftmaxCrossEntropy& step, StepResult& result) {
  for (const Sample& sample : samples) {
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
  const Scratch samples = planner.scratch(logits.shape.batch * sizeof(Sample));
  return with_type(logits.element, [&]<class T>(T) -> Action {
    return [=, threads = planner.threads()](const Frame& frame) {
      auto* sample = samples.in<Sample>(frame);
      for_each_item(threads, logits.shape.batch, [&](std::size_t n) {
        T* dlogit = dlogits.data ? dlogits.image_at<T>(n) : nullptr;
        const int label = frame.batch.labels[n];
        if (dlogit) std::fill_n(dlogit, dlogits.image(), T(0));
        sample[n] = label < 0
                        ? Sample{0, -1}
                        : cross_entropy(logits.image_at<T>(n), dlogit, logits.shape.channels, label,
                                        step.smoothing, step.weight * frame.sample_weight);
      });
      add_up(std::span(sample, logits.shape.batch), step, frame.result);
    };
  });
}

}  // namespace ringtrain::compute::onednn
