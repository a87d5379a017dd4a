#include <fmt/core.h>

#include "model/zoo/zoo.hpp"

namespace ringtrain::model {
namespace {

using Kind = Initialiser::Kind;

struct Size {
  int height = 1, width = 1;
};

// Inception v3 (Szegedy et al. 2015) as TensorFlow's "slim" library defines it: BatchNorm without
// gamma, average pools that do not count padding. Names are torchvision's, which has the same
// convolutions.
class InceptionBuilder {
 public:
  GraphBuilder g;

  compute::TensorId unit(const std::string& name, compute::TensorId x, int channels, Size size = {},
                         int stride = 1, Padding padding = Padding::same, double sigma = 0.1) {
    return activated(name, convolution(name, x, channels, size, stride, padding, sigma));
  }
  compute::TensorId valid(const std::string& name, compute::TensorId x, int channels, int size,
                          int stride) {
    return unit(name, x, channels, {size, size}, stride, Padding::valid);
  }
  compute::TensorId max_pool(compute::TensorId x) {
    return g.max_pool(x, {.size = 3, .stride = 2});
  }

  compute::TensorId stem(compute::TensorId x) {
    x = valid("Conv2d_1a_3x3", x, 32, 3, 2);
    x = valid("Conv2d_2a_3x3", x, 32, 3, 1);
    x = max_pool(unit("Conv2d_2b_3x3", x, 64, {3, 3}));
    x = valid("Conv2d_3b_1x1", x, 80, 1, 1);
    return max_pool(valid("Conv2d_4a_3x3", x, 192, 3, 1));
  }

  compute::TensorId block_a(const std::string& block, compute::TensorId x, int pool_channels) {
    const auto open =
        openings(block, x, {{"branch1x1", 64}, {"branch5x5_1", 48}, {"branch3x3dbl_1", 64}});
    const compute::TensorId five = unit(block + "branch5x5_2", open[1], 64, {5, 5});
    compute::TensorId three = unit(block + "branch3x3dbl_2", open[2], 96, {3, 3});
    three = unit(block + "branch3x3dbl_3", three, 96, {3, 3});
    return g.beside({open[0], five, three, pooled(block, x, pool_channels)});
  }

  compute::TensorId block_b(const std::string& block, compute::TensorId x) {
    const compute::TensorId three = valid(block + "branch3x3", x, 384, 3, 2);
    compute::TensorId twice = unit(block + "branch3x3dbl_1", x, 64);
    twice = unit(block + "branch3x3dbl_2", twice, 96, {3, 3});
    twice = valid(block + "branch3x3dbl_3", twice, 96, 3, 2);
    return g.beside({three, twice, max_pool(x)});
  }

  compute::TensorId block_c(const std::string& block, compute::TensorId x, int c) {
    const auto open =
        openings(block, x, {{"branch1x1", 192}, {"branch7x7_1", c}, {"branch7x7dbl_1", c}});
    compute::TensorId seven = unit(block + "branch7x7_2", open[1], c, {1, 7});
    seven = unit(block + "branch7x7_3", seven, 192, {7, 1});
    compute::TensorId twice = unit(block + "branch7x7dbl_2", open[2], c, {7, 1});
    twice = unit(block + "branch7x7dbl_3", twice, c, {1, 7});
    twice = unit(block + "branch7x7dbl_4", twice, c, {7, 1});
    twice = unit(block + "branch7x7dbl_5", twice, 192, {1, 7});
    return g.beside({open[0], seven, twice, pooled(block, x, 192)});
  }

  compute::TensorId block_d(const std::string& block, compute::TensorId x) {
    const auto open = openings(block, x, {{"branch3x3_1", 192}, {"branch7x7x3_1", 192}});
    const compute::TensorId three = valid(block + "branch3x3_2", open[0], 320, 3, 2);
    compute::TensorId seven = unit(block + "branch7x7x3_2", open[1], 192, {1, 7});
    seven = unit(block + "branch7x7x3_3", seven, 192, {7, 1});
    seven = valid(block + "branch7x7x3_4", seven, 192, 3, 2);
    return g.beside({three, seven, max_pool(x)});
  }

  compute::TensorId block_e(const std::string& block, compute::TensorId x) {
    const auto open =
        openings(block, x, {{"branch1x1", 320}, {"branch3x3_1", 384}, {"branch3x3dbl_1", 448}});
    const compute::TensorId three = forked(block + "branch3x3_2", open[1]);
    const compute::TensorId twice =
        forked(block + "branch3x3dbl_3", unit(block + "branch3x3dbl_2", open[2], 384, {3, 3}));
    return g.beside({open[0], three, twice, pooled(block, x, 192)});
  }

  void head(compute::TensorId x, int classes) {
    x = g.dropout(g.global_pool(x), 0.8f);
    g.loss(logits("fc", x, classes, 0.01));
  }
  void auxiliary_head(compute::TensorId x, int classes) {
    x = unit("AuxLogits.conv0", g.average_pool(x, {.size = 5, .stride = 3}), 128);
    x = unit("AuxLogits.conv1", x, 768, {5, 5}, 1, Padding::valid, 0.01);
    g.loss(logits("AuxLogits.fc", x, classes, 0.001), {.weight = 0.4f, .auxiliary = true});
  }

 private:
  struct Opening {
    const char* name;
    int channels;
  };

  compute::TensorId convolution(const std::string& name, compute::TensorId x, int channels,
                                Size size, int stride, Padding padding, double sigma) {
    return g.convolution(name + ".conv", x,
                         {.channels = channels,
                          .height = size.height,
                          .width = size.width,
                          .stride = stride,
                          .padding = padding,
                          .initial = {Kind::truncated_normal, sigma}});
  }
  compute::TensorId activated(const std::string& name, compute::TensorId x) {
    return g.relu(g.batch_norm(
        name + ".bn", x, {.gamma = false, .epsilon = 1e-3f, .momentum = 3e-4f, .unbiased = false}));
  }

  // The 1x1 convolutions that open a block's branches. Their weights lie beside each other, and so
  // do their betas: one convolution can compute them all.
  std::vector<compute::TensorId> openings(const std::string& block, compute::TensorId x,
                                          const std::vector<Opening>& branches) {
    std::vector<compute::TensorId> opened;
    for (const auto& [name, channels] : branches)
      opened.push_back(convolution(block + name, x, channels, {}, 1, Padding::same, 0.1));
    for (std::size_t i = 0; i < branches.size(); ++i)
      opened[i] = activated(block + branches[i].name, opened[i]);
    return opened;
  }
  compute::TensorId pooled(const std::string& block, compute::TensorId x, int channels) {
    return unit(block + "branch_pool",
                g.average_pool(x, {.size = 3, .stride = 1, .padding = Padding::same}), channels);
  }
  compute::TensorId forked(const std::string& name, compute::TensorId x) {
    const compute::TensorId wide = unit(name + "a", x, 384, {1, 3});
    return g.beside({wide, unit(name + "b", x, 384, {3, 1})});
  }
  compute::TensorId logits(const std::string& name, compute::TensorId x, int classes,
                           double sigma) {
    return g.matrix_product(name, x, classes, {Kind::truncated_normal, sigma}, 0.0, true);
  }
};

Recipe inception_recipe() {
  Recipe recipe;
  recipe.batch = 32;
  recipe.epochs = 100;
  recipe.optimizer = "rmsprop";
  recipe.learning_rate = 0.045;
  recipe.schedule = "step:2:0.94";
  recipe.weight_decay = 4e-5;
  recipe.label_smoothing = 0.1;
  recipe.ema = 0.9999;
  recipe.random_resized_crop = true;
  recipe.smallest_area = 0.05;
  recipe.brightness = 32;
  recipe.least_contrast = recipe.least_saturation = 0.5f;
  recipe.most_contrast = recipe.most_saturation = 1.5f;
  recipe.hue = 0.2f;
  recipe.evaluation_fraction = 0.875;
  return recipe;
}

}  // namespace

Model make_inception_v3(int classes) {
  InceptionBuilder b;
  compute::TensorId x = b.g.input(299, 299, 3,
                                  {.normalisation = compute::Normalisation::mean_deviation,
                                   .mean = {0.5f, 0.5f, 0.5f},
                                   .deviation = {0.5f, 0.5f, 0.5f},
                                   .distort = true,
                                   .clip = true});
  x = b.stem(x);
  x = b.block_a("Mixed_5b.", x, 32);
  x = b.block_a("Mixed_5c.", x, 64);
  x = b.block_a("Mixed_5d.", x, 64);
  x = b.block_b("Mixed_6a.", x);
  x = b.block_c("Mixed_6b.", x, 128);
  x = b.block_c("Mixed_6c.", x, 160);
  x = b.block_c("Mixed_6d.", x, 160);
  x = b.block_c("Mixed_6e.", x, 192);
  b.auxiliary_head(x, classes);
  x = b.block_d("Mixed_7a.", x);
  x = b.block_e("Mixed_7b.", x);
  x = b.block_e("Mixed_7c.", x);
  b.head(x, classes);
  return {"inception_v3", {1, 299, 299, 3}, classes, std::move(b.g).finish(), inception_recipe()};
}

}  // namespace ringtrain::model
