#include <algorithm>
#include <cmath>

#include "compute/reference/state.hpp"

namespace ringtrain::compute::reference {
namespace {

// Of a sample whose targets are `wanted`; its gradient goes to `dlogit`, where that is not null.
double binary_cross_entropy(const SoftmaxCrossEntropy& step, const double* logit,
                            std::vector<double>& wanted, double scale, double* dlogit) {
  const int classes = static_cast<int>(wanted.size());
  const double factor = step.binary->sums ? 1 : 1.0 / classes;
  double loss = 0;
  for (int c = 0; c < classes; ++c) {
    const double weight = factor * (step.class_weights.empty() ? 1 : step.class_weights[c]);
    if (step.binary->threshold > 0) wanted[c] = wanted[c] > step.binary->threshold;
    loss += weight * (std::log1p(std::exp(-std::abs(logit[c]))) + std::max(logit[c], 0.0) -
                      wanted[c] * logit[c]);
    if (dlogit) dlogit[c] = scale * weight * (1 / (1 + std::exp(-logit[c])) - wanted[c]);
  }
  return loss;
}

}  // namespace

template <>
void run(const SoftmaxCrossEntropy& step, State& s) {
  const int classes = s.shape(step.logits).channels;
  const double smoothing = step.smoothing;
  std::vector<double> probability(classes), wanted(classes);
  for (int n = 0; n < s.shape(step.logits).batch; ++n) {
    const Target& target = s.batch->samples[n].target;
    const int label = target.label;
    const double* logit = &s[step.logits][std::size_t(n) * classes];
    double* dlogit =
        step.dlogits == no_tensor ? nullptr : &s[step.dlogits][std::size_t(n) * classes];
    if (label < 0) {
      if (dlogit) std::fill_n(dlogit, classes, 0);
      continue;
    }
    const double highest = *std::max_element(logit, logit + classes);
    double sum = 0;
    for (int c = 0; c < classes; ++c) sum += probability[c] = std::exp(logit[c] - highest);
    double loss = 0, all_wanted = 0;
    for (int c = 0; c < classes; ++c)
      wanted[c] = smoothing / classes + (1 - smoothing) * target.share_of(c);
    const double scale = step.weight * s.sample_weight;
    if (step.binary) loss = binary_cross_entropy(step, logit, wanted, scale, dlogit);
    for (int c = 0; !step.binary && c < classes; ++c) {
      if (!step.class_weights.empty()) wanted[c] *= step.class_weights[c];
      all_wanted += wanted[c];
      loss -= wanted[c] * (logit[c] - highest - std::log(sum));
    }
    if (step.class_weights.empty()) all_wanted = 1;  // to the bit
    for (int c = 0; dlogit && !step.binary && c < classes; ++c)
      dlogit[c] = scale * (all_wanted * probability[c] / sum - wanted[c]);
    s.result.loss += step.weight * loss;
    if (!step.counts) continue;
    // Among equal logits the lower class is the better one; one that is no number is never right.
    int better = 0;
    for (int c = 0; c < classes; ++c)
      better += !(logit[c] < logit[label] || (logit[c] == logit[label] && c >= label));
    ++s.result.samples;
    s.result.top1 += better < 1;
    s.result.top5 += better < 5;
  }
}

}  // namespace ringtrain::compute::reference
