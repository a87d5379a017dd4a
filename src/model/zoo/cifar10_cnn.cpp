#include "model/zoo/zoo.hpp"

namespace ringtrain::model {

// The network of TensorFlow's CIFAR-10 tutorial.
Model make_cifar10_cnn(int classes) {
  using Kind = Initialiser::Kind;
  GraphBuilder g;
  const auto convolution = [&](const std::string& name, compute::TensorId x, double bias) {
    return g.relu(g.convolution(name, x,
                                {.channels = 64,
                                 .height = 5,
                                 .width = 5,
                                 .initial = {Kind::truncated_normal, 0.05},
                                 .bias = true,
                                 .bias_value = bias,
                                 .decay = false}));
  };
  const GraphBuilder::PoolOptions pool{.size = 3, .stride = 2, .padding = Padding::same};

  compute::TensorId x = g.input(
      24, 24, 3, {.normalisation = compute::Normalisation::standardise_image, .distort = true});
  x = convolution("conv1", x, 0.0);
  x = g.lrn(g.max_pool(x, pool), {});
  x = convolution("conv2", x, 0.1);
  x = g.max_pool(g.lrn(x, {}), pool);
  x = g.relu(g.matrix_product("local3", x, 384, {Kind::truncated_normal, 0.04}, 0.1, true));
  x = g.relu(g.matrix_product("local4", x, 192, {Kind::truncated_normal, 0.04}, 0.1, true));
  g.loss(g.matrix_product("softmax_linear", x, classes, {Kind::truncated_normal, 1 / 192.0}, 0.0,
                          false));

  Recipe recipe;
  recipe.optimizer = "sgd";
  recipe.schedule = "step:350:0.1";
  recipe.weight_decay = 0.004;
  recipe.ema = 0.9999;
  recipe.random_crop = true;
  recipe.brightness = 63;
  recipe.least_contrast = 0.2f;
  recipe.most_contrast = 1.8f;
  return {"cifar10_cnn", {1, 24, 24, 3}, classes, std::move(g).finish(), recipe};
}

}  // namespace ringtrain::model
