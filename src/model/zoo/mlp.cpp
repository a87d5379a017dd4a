#include <cmath>

#include "model/zoo/zoo.hpp"

namespace ringtrain::model {

Model make_mlp(int classes) {
  GraphBuilder g;
  compute::TensorId x =
      g.input(32, 32, 3,
              {compute::Normalisation::mean_deviation, {0.5f, 0.5f, 0.5f}, {0.25f, 0.25f, 0.25f}});
  const auto layer = [&](const std::string& name, int outputs) {
    const double sigma = std::sqrt(2.0 / double(g.shape(x).features()));
    x = g.matrix_product(name, x, outputs, {Initialiser::Kind::normal, sigma}, 0.0, true);
  };
  layer("fc1", 256);
  x = g.relu(x);
  layer("fc2", 128);
  x = g.relu(x);
  layer("fc3", classes);
  g.loss(x);

  Recipe recipe;
  recipe.learning_rate = 0.05;
  recipe.epochs = 20;
  recipe.warmup_epochs = 1;
  return {"mlp", {1, 32, 32, 3}, classes, std::move(g).finish(), recipe};
}

}  // namespace ringtrain::model
