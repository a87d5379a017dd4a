#include "model/zoo/zoo.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>
#include <variant>

#include "ringtrain/base/error.hpp"
#include "ringtrain/base/text.hpp"

namespace ringtrain::model {
namespace {

struct Entry {
  const char* name;
  int classes;
  Model (*make)(int classes);
};

template <int depth>
Model cifar_resnet(int classes) {
  return make_cifar_resnet(depth, classes);
}
template <int depth>
Model imagenet_resnet(int classes) {
  return make_imagenet_resnet(depth, classes);
}

constexpr Entry models[] = {
    {"mlp", 10, make_mlp},
    {"cifar10_cnn", 10, make_cifar10_cnn},
    {"resnet20", 10, cifar_resnet<20>},
    {"resnet32", 10, cifar_resnet<32>},
    {"resnet44", 10, cifar_resnet<44>},
    {"resnet56", 10, cifar_resnet<56>},
    {"resnet18", 1000, imagenet_resnet<18>},
    {"resnet34", 1000, imagenet_resnet<34>},
    {"resnet50", 1000, imagenet_resnet<50>},
    {"resnet101", 1000, imagenet_resnet<101>},
    {"resnet152", 1000, imagenet_resnet<152>},
    {"inception_v3", 1001, make_inception_v3},
};

const Entry& entry(const std::string& name) {
  const auto* found = std::ranges::find(models, name, &Entry::name);
  if (found != std::end(models)) return *found;
  throw Error(Exit::usage, "--model " + name,
              fmt::format("no such model; did you mean {}? `train --model list` shows all",
                          nearest(name, model_names())));
}

}  // namespace

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const Entry& e : models) names.emplace_back(e.name);
  return names;
}

int default_classes(const std::string& name) { return entry(name).classes; }

Model make_model(const std::string& name, int classes) { return entry(name).make(classes); }

// The first layer needs no gradient of the image.
double Model::training_flops() const {
  double first = 0;
  for (const Node& node : graph.nodes)
    if (const auto* c = std::get_if<Convolution>(&node.operation)) {
      first = double(graph.tensors[node.output].pixels()) * double(graph.parameters[c->w].count());
      break;
    } else if (const auto* m = std::get_if<MatrixProduct>(&node.operation)) {
      first = double(graph.parameters[m->w].count());
      break;
    }
  return 6 * graph.multiply_adds() - 2 * first;
}

}  // namespace ringtrain::model
