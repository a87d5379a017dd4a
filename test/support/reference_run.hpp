#pragma once
#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "compute/reference/state.hpp"
#include "ringtrain/model/passes.hpp"

namespace ringtrain {

/// One batch through a network in double precision: an evaluation and one training step, with label
/// smoothing 0.1.
class ReferenceRun {
 public:
  /// `values`: all parameters, then all statistics. The batch has as many images as labels.
  ReferenceRun(const model::Graph& graph, std::span<const float> values,
               std::vector<std::uint8_t> images, std::span<const int> labels) {
    const compute::Shape& image = graph.tensors[0];
    batch_.resize(static_cast<int>(labels.size()), image.height, image.width, image.channels);
    batch_.images = std::move(images);
    for (std::size_t n = 0; n < labels.size(); ++n) batch_.samples[n] = {n, 0, {labels[n]}};
    run(graph, model::Mode::prediction, values, evaluation_logits, nullptr);
    run(graph, model::Mode::evaluation, values, unused_, &evaluation_loss);
    run(graph, model::Mode::training, values, logits, &loss);
  }

  std::vector<double> evaluation_logits, logits, gradients, batch_statistics;
  double evaluation_loss = 0, loss = 0;  ///< means over the images

  std::vector<std::vector<double>> all() const {
    return {evaluation_logits, {evaluation_loss}, logits, {loss}, gradients, batch_statistics};
  }

 private:
  void run(const model::Graph& graph, model::Mode mode, std::span<const float> values,
           std::vector<double>& result, double* mean) {
    compute::Schedule schedule = model::lower(graph, batch_.size(), mode, 0.1f);
    if (mode == model::Mode::training) schedule = model::differentiate(std::move(schedule));
    compute::reference::State state(schedule, 1);
    std::copy_n(values.begin(), schedule.parameters, state.parameters.begin());
    std::ranges::copy(values.subspan(schedule.parameters), state.statistics.begin());
    state.batch = &batch_;
    state.sample_weight = 1. / batch_.size();
    compute::TensorId read = schedule.logits;
    for (const compute::Step& step : schedule.steps) {
      compute::reference::run_step(step, state);
      if (const auto* head = std::get_if<compute::SoftmaxCrossEntropy>(&step)) read = head->logits;
    }
    result = state[read];
    if (mean) *mean = state.result.loss / batch_.size();
    if (mode != model::Mode::training) return;
    gradients = state.gradients;
    batch_statistics = state.batch_statistics;
  }

  Batch batch_;
  std::vector<double> unused_;
};

}  // namespace ringtrain
