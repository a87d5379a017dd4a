#pragma once
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "ringtrain/optim/optimizer.hpp"
#include "support/given_images.hpp"
#include "train/state/training_state.hpp"

namespace ringtrain {

/// A model's recipe on one rank, but for the rate, which stays, and dropout and the moving average,
/// which there are none of: so that another program can do the same.
struct RecipeRun {
  std::string model;
  int extent = 224;  ///< other than the model's for ResNets only
  int batch = 1, classes = 1000;
  optim::OptimizerKind optimizer = optim::OptimizerKind::momentum;
  double learning_rate = 0.01;
  int steps = 1;
  std::string backend = "onednn";
};

/// Gives a graph's state its first values.
using Start = std::function<void(const model::Graph& graph, const train::TrainingState& state)>;
/// Takes one result.
using Take = std::function<void(const std::string& name, const std::vector<std::size_t>& extents,
                                std::span<const float> values)>;

/// Hands all that comes of the run to `take`: evaluation/loss and /logits before training; of each
/// step step<k>/loss, /weights/<parameter> behind it and /statistics/<name>, how far they have come
/// since the start; of the first step also /logits and /gradients/<parameter>. Logits come from
/// oneDNN only. `images` holds `batch` for each step, in order.
void run_recipe(const RecipeRun& run, const GivenImages& images, const Start& start,
                const Take& take);

}  // namespace ringtrain
