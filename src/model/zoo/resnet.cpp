#include <fmt/core.h>

#include <cmath>

#include "model/zoo/zoo.hpp"

namespace ringtrain::model {
namespace {

using Kind = Initialiser::Kind;

// Residual networks (He et al. 2015) with torchvision's names.
class ResNetBuilder {
 public:
  GraphBuilder g;

  // He initialisation by fan-out, as He's and torchvision's.
  compute::TensorId convolution(const std::string& name, compute::TensorId x, int channels,
                                int size, int stride) {
    const double sigma = std::sqrt(2.0 / (double(size) * size * channels));
    return g.convolution(name, x,
                         {.channels = channels,
                          .height = size,
                          .width = size,
                          .stride = stride,
                          .symmetric_padding = size / 2,
                          .initial = {Kind::normal, sigma}});
  }
  compute::TensorId norm(const std::string& name, compute::TensorId x, double gamma = 1) {
    return g.batch_norm(name, x, {.gamma_value = gamma});
  }
  void head(compute::TensorId x, int classes) {
    x = g.global_pool(x);
    const double bound = 1 / std::sqrt(double(g.shape(x).features()));
    g.loss(g.matrix_product("fc", x, classes, {Kind::uniform, bound}, 0.0, true));
  }

  // Two 3x3 convolutions around a shortcut without parameters (option A).
  compute::TensorId cifar_block(const std::string& name, compute::TensorId x, int channels,
                                int stride) {
    compute::TensorId y =
        g.relu(norm(name + ".bn1", convolution(name + ".conv1", x, channels, 3, stride)));
    y = norm(name + ".bn2", convolution(name + ".conv2", y, channels, 3, 1));
    if (stride != 1 || g.shape(x).channels != channels) x = g.shortcut(x, stride, channels);
    return g.relu(g.sum(y, x));
  }

  compute::TensorId basic_block(const std::string& name, compute::TensorId x, int width,
                                int stride) {
    compute::TensorId y =
        g.relu(norm(name + ".bn1", convolution(name + ".conv1", x, width, 3, stride)));
    y = norm(name + ".bn2", convolution(name + ".conv2", y, width, 3, 1), 0);
    return g.relu(g.sum(y, projected(name, x, width, stride)));
  }

  // "v1.5": the stride is on the 3x3 convolution.
  compute::TensorId bottleneck(const std::string& name, compute::TensorId x, int width,
                               int stride) {
    compute::TensorId y = g.relu(norm(name + ".bn1", convolution(name + ".conv1", x, width, 1, 1)));
    y = g.relu(norm(name + ".bn2", convolution(name + ".conv2", y, width, 3, stride)));
    y = norm(name + ".bn3", convolution(name + ".conv3", y, 4 * width, 1, 1), 0);
    return g.relu(g.sum(y, projected(name, x, 4 * width, stride)));
  }

 private:
  // The shortcut: the input itself, or a 1x1 convolution where the extents change.
  compute::TensorId projected(const std::string& name, compute::TensorId x, int channels,
                              int stride) {
    if (stride == 1 && g.shape(x).channels == channels) return x;
    return norm(name + ".downsample.1",
                convolution(name + ".downsample.0", x, channels, 1, stride));
  }
};

std::string block_name(int stage, int block) { return fmt::format("layer{}.{}", stage + 1, block); }

std::vector<int> stages_of(int depth) {
  switch (depth) {
    case 18:
      return {2, 2, 2, 2};
    case 34:
    case 50:
      return {3, 4, 6, 3};
    case 101:
      return {3, 4, 23, 3};
    default:
      return {3, 8, 36, 3};
  }
}

}  // namespace

Model make_cifar_resnet(int depth, int classes) {
  ResNetBuilder b;
  compute::TensorId x = b.g.input(32, 32, 3,
                                  {compute::Normalisation::mean_deviation,
                                   {0.4914f, 0.4822f, 0.4465f},
                                   {0.2470f, 0.2435f, 0.2616f}});
  x = b.g.relu(b.norm("bn1", b.convolution("conv1", x, 16, 3, 1)));
  for (int stage = 0; stage < 3; ++stage)
    for (int block = 0; block < (depth - 2) / 6; ++block)
      x = b.cifar_block(block_name(stage, block), x, 16 << stage, stage > 0 && block == 0 ? 2 : 1);
  b.head(x, classes);

  Recipe recipe;
  recipe.learning_rate_batch = 128;
  recipe.warmup_epochs = 1;
  recipe.weight_decay = 1e-4;
  recipe.pad = 4;
  return {fmt::format("resnet{}", depth), {1, 32, 32, 3}, classes, std::move(b.g).finish(), recipe};
}

Model make_imagenet_resnet(int depth, int classes) {
  ResNetBuilder b;
  compute::TensorId x = b.g.input(
      224, 224, 3,
      {compute::Normalisation::mean_deviation, {0.485f, 0.456f, 0.406f}, {0.229f, 0.224f, 0.225f}});
  x = b.g.relu(b.norm("bn1", b.convolution("conv1", x, 64, 7, 2)));
  x = b.g.max_pool(x, {.size = 3, .stride = 2, .symmetric_padding = 1});
  const std::vector<int> stages = stages_of(depth);
  for (int stage = 0; stage < 4; ++stage)
    for (int block = 0; block < stages[stage]; ++block) {
      const int stride = stage > 0 && block == 0 ? 2 : 1;
      x = depth < 50 ? b.basic_block(block_name(stage, block), x, 64 << stage, stride)
                     : b.bottleneck(block_name(stage, block), x, 64 << stage, stride);
    }
  b.head(x, classes);

  Recipe recipe;
  recipe.batch = 32;
  recipe.epochs = 90;
  recipe.learning_rate = 0.256;
  recipe.learning_rate_batch = 256;
  recipe.warmup_epochs = 5;
  recipe.weight_decay = 5e-5;
  recipe.label_smoothing = 0.1;
  recipe.random_resized_crop = true;
  recipe.evaluation_fraction = 0.875;
  recipe.keep_aspect = true;
  return {
      fmt::format("resnet{}", depth), {1, 224, 224, 3}, classes, std::move(b.g).finish(), recipe};
}

}  // namespace ringtrain::model
