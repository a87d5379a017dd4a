#include <algorithm>
#include <cmath>

#include "compute/onednn/parallel.hpp"
#include "compute/onednn/plan.hpp"

namespace ringtrain::onednn {
namespace {

// What one sample adds to the result.
struct Sample {
  double loss;
  int better;  // classes ahead of the label; -1 for a place that pads the batch
};

// Writes the unscaled gradient where `dlogit` is not null.
Sample cross_entropy(const float* logit, float* dlogit, int classes, int label, double smoothing,
                     double scale) {
  const double highest = *std::max_element(logit, logit + classes);
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

}  // namespace

Action plan(const SoftmaxCrossEntropy& step, Planner& planner) {
  const Tensor logits = planner.tensor(step.logits);
  float* dlogits = step.dlogits == no_tensor ? nullptr : planner.tensor(step.dlogits).data;
  const Scratch samples = planner.scratch(logits.shape.batch * sizeof(Sample));
  return [=, threads = planner.threads()](const Frame& frame) {
    const int classes = logits.shape.channels;
    auto* sample = samples.in<Sample>(frame);
    for_each_item(threads, logits.shape.batch, [&](std::size_t n) {
      const std::size_t first = n * logits.image();
      float* dlogit = dlogits ? dlogits + first : nullptr;
      const int label = frame.batch.labels[n];
      if (dlogit) std::fill_n(dlogit, logits.image(), 0.f);
      sample[n] = label < 0 ? Sample{0, -1}
                            : cross_entropy(logits.data + first, dlogit, classes, label,
                                            step.smoothing, step.weight * frame.sample_weight);
    });
    for (int n = 0; n < logits.shape.batch; ++n) {
      if (sample[n].better < 0) continue;
      frame.result.loss += step.weight * sample[n].loss;
      if (!step.counts) continue;
      ++frame.result.samples;
      frame.result.top1 += sample[n].better < 1;
      frame.result.top5 += sample[n].better < 5;
    }
  };
}

}  // namespace ringtrain::onednn
