#include "ringtrain/model/zoo.hpp"

#include <fmt/ranges.h>

#include <cmath>
#include <functional>

#include "ringtrain/base/error.hpp"
#include "ringtrain/base/hash.hpp"
#include "support/catch.hpp"
#include "support/model_files.hpp"

using namespace ringtrain;
using namespace ringtrain::model;

namespace {

template <class Operation>
Node& first(Graph& graph) {
  for (Node& node : graph.nodes)
    if (std::holds_alternative<Operation>(node.operation)) return node;
  throw Error("test", "the graph has no such operation");
}

template <class Wanted>
Wanted& operation(Graph& graph) {
  return std::get<Wanted>(first<Wanted>(graph).operation);
}

Graph with_every_operation() {
  GraphBuilder g;
  const compute::TensorId x = g.input(12, 12, 3, {});
  const compute::TensorId convolved =
      g.convolution("conv", x, {.channels = 4, .height = 3, .width = 3});
  const compute::TensorId y = g.relu(g.batch_norm("bn", convolved, {}));
  const compute::TensorId half = g.sum(g.max_pool(y, {}), g.shortcut(y, 2, 4));
  const compute::TensorId all = g.beside({g.lrn(half, {}), half});
  const compute::TensorId scaled = g.scale(all, g.global_pool(all));
  const compute::TensorId small = g.blur_pool(g.layer_norm("ln", scaled, 1e-6f), 3, 2);
  const compute::TensorId factor = g.multiply(g.layer_scale("ls", small, 1, true), 0.5f);
  const compute::TensorId pooled = g.dropout(g.global_pool(factor), 0.5f);
  g.loss(g.matrix_product("fc", pooled, 5, {}, 0.0, true));
  return std::move(g).finish();
}

// What the structure's hash does not tell: how images are made, first values, and the recipe.
std::string training_text(const Model& m) {
  const Recipe& r = m.recipe;
  std::string text =
      fmt::format("{} {} {} {} {} {} {} {} {} {} {} {}\n{} {} {} {} {} {} {} {} {} {} {} {} {}\n",
                  r.batch, r.epochs, r.optimizer, r.learning_rate, r.learning_rate_batch,
                  r.schedule, r.warmup_epochs, r.weight_decay, r.momentum, r.label_smoothing, r.ema,
                  r.pad, r.random_crop, r.random_resized_crop, r.smallest_area, r.flip,
                  r.brightness, r.least_contrast, r.most_contrast, r.least_saturation,
                  r.most_saturation, r.hue, r.evaluation_fraction, r.keep_aspect, m.name);
  const ImageInput& image = std::get<ImageInput>(m.graph.nodes[0].operation);
  text += fmt::format("{} {} {}\n", m.classes, image.jitter, image.clip);
  for (const Parameter& p : m.graph.parameters)
    text += fmt::format("{} {} {} {} {} {}\n", p.name, fmt::join(p.dims, "x"), int(p.role), p.decay,
                        int(p.initial.kind), p.initial.value);
  return text;
}

}  // namespace

TEST_CASE("zoo: parameter counts are the published ones") {
  const auto [name, parameters] = GENERATE(table<std::string, std::size_t>({
      {"mlp", 3072 * 256 + 256 + 256 * 128 + 128 + 128 * 10 + 10},
      {"cifar10_cnn", 1'068'298},
      {"resnet20", 269'722},
      {"resnet32", 464'154},
      {"resnet44", 658'586},
      {"resnet56", 853'018},
      {"resnet18", 11'689'512},
      {"resnet34", 21'797'672},
      {"resnet50", 25'557'032},
      {"resnet101", 44'549'160},
      {"resnet152", 60'192'808},
      {"inception_v3", 27'145'970},
  }));
  CAPTURE(name);

  CHECK(make_model(name).graph.parameter_count() == parameters);
}

TEST_CASE("zoo: multiply-adds of one image are the published ones") {
  CHECK(make_model("cifar10_cnn", 10).graph.multiply_adds() / 1e6 == Approx(18.5).epsilon(0.01));
  CHECK(make_model("resnet50", 1000).graph.multiply_adds() / 1e9 == Approx(4.089).epsilon(0.001));
  CHECK(make_model("resnet50", 1000).graph.training_flops() / 1e9 == Approx(24.3).epsilon(0.002));
  const Model inception = make_model("inception_v3", 1000);  // with the auxiliary head
  CHECK(inception.graph.multiply_adds() / 1e9 == Approx(5.713 + 0.0057).epsilon(0.0003));
  CHECK(inception.graph.training_flops() / 1e9 == Approx(34.3).epsilon(0.002));
}

TEST_CASE("zoo: names are torchvision's") {
  const Graph graph = make_model("resnet50", 1000).graph;
  std::vector<std::string> names;
  for (const Parameter& p : graph.parameters) names.push_back(p.name);

  CHECK(names.size() == 161);
  CHECK(names.front() == "conv1.weight");
  CHECK(std::ranges::count(names, "layer1.0.downsample.0.weight") == 1);
  CHECK(std::ranges::count(names, "layer4.2.bn3.bias") == 1);
  CHECK(names.back() == "fc.bias");
  CHECK(graph.statistics.size() == 53);
}

TEST_CASE("zoo: inception_v3 has slim's parts in slim's sizes") {
  const Graph graph = make_model("inception_v3", 1001).graph;
  const auto parameters = [&](int classes, auto&& wanted) {
    std::size_t count = 0;
    for (const Parameter& p : make_model("inception_v3", classes).graph.parameters)
      if (wanted(p.name)) count += p.count();
    return count;
  };
  const auto auxiliary = [](const std::string& name) { return name.starts_with("AuxLogits."); };

  CHECK(parameters(1000, std::not_fn(auxiliary)) == 23'817'352);
  CHECK(parameters(1001, std::not_fn(auxiliary)) == 23'819'401);
  CHECK(parameters(1001, auxiliary) == 3'326'569);
  CHECK(graph.parameters.size() == 196);
  CHECK(graph.statistic_count() == 36'224);
  // torchvision's BatchNorms have a gamma of as many values as there are means.
  CHECK(make_model("inception_v3", 1000).graph.parameter_count() + 36'224 / 2 == 27'161'264);
}

TEST_CASE("zoo: inception_v3's blocks have the published extents") {
  const Graph graph = make_model("inception_v3", 1001).graph;
  std::vector<compute::Shape> joined;
  for (const Node& node : graph.nodes)
    if (std::holds_alternative<Concat>(node.operation) && node.inputs.size() > 2)
      joined.push_back(graph.tensors[node.output]);

  CHECK(joined == std::vector<compute::Shape>{{1, 35, 35, 256},
                                              {1, 35, 35, 288},
                                              {1, 35, 35, 288},
                                              {1, 17, 17, 768},
                                              {1, 17, 17, 768},
                                              {1, 17, 17, 768},
                                              {1, 17, 17, 768},
                                              {1, 17, 17, 768},
                                              {1, 8, 8, 1280},
                                              {1, 8, 8, 2048},
                                              {1, 8, 8, 2048}});
}

TEST_CASE("zoo: cifar10_cnn decays local3 and local4 only") {
  std::vector<std::string> decayed;
  for (const Parameter& p : make_model("cifar10_cnn", 10).graph.parameters)
    if (p.decay) decayed.push_back(p.name);

  CHECK(decayed == std::vector<std::string>{"local3.weight", "local4.weight"});
}

TEST_CASE("zoo: an unknown model is told the nearest name") {
  CHECK_THROWS_WITH(make_model("resnet5", 10), Catch::Contains("did you mean resnet5"));
  CHECK_THROWS_WITH(make_model("ResNet-50", 10), Catch::EndsWith("did you mean resnet50?"));
  CHECK_THROWS_WITH(make_model("timm/resnet50.a1_in1k", 10),
                    Catch::Contains("did you mean resnet50, with its weights by --init-from"));
  CHECK_THROWS_WITH(make_model("vgg19_bn", 10), !Catch::Contains("did you mean"));
  CHECK_THROWS_WITH(make_model("vit_b_16", 10), !Catch::Contains("did you mean"));
}

TEST_CASE("initialise: it tells that it goes on, once a million values or more often") {
  struct Count final : WorkProgress {
    std::size_t advanced = 0;
    void at(Work, std::string_view) noexcept override {}
    void advance() noexcept override { ++advanced; }
  } count;
  const Graph graph = make_model("resnet18", 10).graph;
  std::vector<float> parameters(graph.parameter_count()), statistics(graph.statistic_count());

  initialise(graph, 1, parameters, statistics, &count);

  CHECK(count.advanced >= graph.parameters.size() + (parameters.size() >> 21));
}

TEST_CASE("initialise: deviations are the recipe's and the seed is all that matters") {
  const Graph graph = make_model("cifar10_cnn", 10).graph;
  std::vector<float> a(graph.parameter_count()), b(a), c(a), statistics;

  initialise(graph, 1, a, statistics);
  initialise(graph, 1, b, statistics);
  initialise(graph, 2, c, statistics);

  CHECK(a == b);
  CHECK(a != c);
  const auto local3 = graph.parameter_ranges()[4];
  REQUIRE(graph.parameters[4].name == "local3.weight");
  double squares = 0, largest = 0;
  for (std::size_t i = local3.first; i < local3.end(); ++i) {
    squares += double(a[i]) * a[i];
    largest = std::max(largest, std::abs(double(a[i])));
  }
  // A normal cut off at two deviations keeps 0.880 of its deviation.
  CHECK(std::sqrt(squares / double(local3.count)) == Approx(0.04 * 0.8796).epsilon(0.01));
  CHECK(largest <= 0.08);
  CHECK(a[graph.parameter_ranges()[3].first] == 0.1f);
}

TEST_CASE("zoo: layers, names, recipes and first values are those of earlier builds") {
  const auto [name, classes, structure, training] =
      GENERATE(table<std::string, std::optional<int>, std::uint64_t, std::uint64_t>({
          {"mlp", std::nullopt, 0x7cfe63537d925d49, 0xec0724791b3e7b5e},
          {"mlp", 7, 0x0299080357ca424a, 0x690c954fe4eddd9d},
          {"cifar10_cnn", std::nullopt, 0x2e28d01a28530826, 0xc1702dad1ea310b9},
          {"cifar10_cnn", 7, 0xc73cb7ce7d79074d, 0xd8f0709aa82d2821},
          {"resnet20", std::nullopt, 0x30487e2f0e96c4a1, 0xc6d8d46b7f31c92f},
          {"resnet20", 7, 0x383f882d430f8f04, 0xf9c7ac4e9beb4168},
          {"resnet32", std::nullopt, 0xbe3b86f050334435, 0x6baef7e0cacb7f3f},
          {"resnet32", 7, 0x241de81c853a617c, 0xa5b4916dea8682a3},
          {"resnet44", std::nullopt, 0x16b40a87e6aeaf35, 0xcc007677fae1acfc},
          {"resnet44", 7, 0x1c2cbb220481d15f, 0xa6244c1e7fd9ccf4},
          {"resnet56", std::nullopt, 0x3155f417294f3181, 0x6bab78a403ab7c4b},
          {"resnet56", 7, 0xa45c66f560088b5f, 0x9f77d478257850b2},
          {"resnet18", std::nullopt, 0xf4da605e83470473, 0x024c188d30ca2f37},
          {"resnet18", 7, 0x26ed50f1d2293871, 0xae832f9ca95e6b88},
          {"resnet34", std::nullopt, 0x49aeca47b2406099, 0x7e527da788e75ad6},
          {"resnet34", 7, 0x13eb1de97098bf85, 0x04a1ca39ef616ca3},
          {"resnet50", std::nullopt, 0x34d60313677595e7, 0x0c1552c6a9700f16},
          {"resnet50", 7, 0x68261cef3c53e6f8, 0x6d7a43d80075ac2c},
          {"resnet101", std::nullopt, 0x255b115031ac8c2c, 0xef95f958d75de005},
          {"resnet101", 7, 0x28683272269a6af7, 0x83a9e25b9e665bac},
          {"resnet152", std::nullopt, 0xe88e673ac00d24f1, 0x309a123fde688473},
          {"resnet152", 7, 0x826813fee77beb93, 0x077ecd1725a1dc19},
          {"inception_v3", std::nullopt, 0xac339ee97f9e16fe, 0x85371919ccb67ab3},
          {"inception_v3", 7, 0xd1112d19a7d35edf, 0x69e29fba8fe01e44},
      }));
  CAPTURE(name, classes);

  const Model model = make_model(name, classes);

  CHECK(model.name == name);
  CHECK(model.graph.structure_hash() == structure);  // checkpoints hold it
  CHECK(hash_text(training_text(model)) == training);
}

TEST_CASE("zoo: a copy of a built-in network is the built-in network") {
  for (const std::string& name : model_names())
    CHECK(text_of(RINGTRAIN_MODELS "/" + name + ".model") == model_text(name));
}

TEST_CASE("structure_hash: every part of a graph that changes what is computed changes it") {
  const auto [what, change] = GENERATE(table<std::string, std::function<void(Graph&)>>({
      {"a layer's name", [](Graph& g) { g.nodes[3].name += "x"; }},
      {"an operation", [](Graph& g) { first<Pointwise>(g).operation = Sum{}; }},
      {"an input", [](Graph& g) { --g.nodes.back().inputs[0]; }},
      {"a number of groups", [](Graph& g) { ++operation<Convolution>(g).window.groups; }},
      {"a stride", [](Graph& g) { ++operation<Convolution>(g).window.stride_y; }},
      {"an epsilon", [](Graph& g) { operation<BatchNorm>(g).epsilon *= 2; }},
      {"a pool's padding", [](Graph& g) { ++operation<MaxPool>(g).window.left; }},
      {"an LRN's radius", [](Graph& g) { ++operation<Lrn>(g).how.radius; }},
      {"a whole sample's dropout",
       [](Graph& g) { operation<DropoutLayer>(g).how.of_sample = true; }},
      {"a LayerNorm's epsilon", [](Graph& g) { operation<LayerNorm>(g).epsilon *= 2; }},
      {"a factor", [](Graph& g) { operation<Multiply>(g).factor = 2; }},
      {"a mirrored border", [](Graph& g) { ++operation<ReflectPad>(g).border; }},
      {"a filter's number", [](Graph& g) { operation<Filter>(g).taps[1] = 0; }},
      {"a filter's stride", [](Graph& g) { ++operation<Filter>(g).window.stride_x; }},
      {"what dropout keeps", [](Graph& g) { operation<DropoutLayer>(g).how.keep = 0.25f; }},
      {"a shortcut's stride", [](Graph& g) { ++operation<Shortcut>(g).stride; }},
      {"a loss's weight", [](Graph& g) { operation<Loss>(g).weight = 0.5f; }},
      {"the input's mean", [](Graph& g) { operation<ImageInput>(g).mean.push_back(1); }},
      {"a tensor's shape", [](Graph& g) { ++g.tensors[g.nodes[2].output].channels; }},
      {"a parameter's name", [](Graph& g) { g.parameters[0].name += "x"; }},
      {"a parameter's size", [](Graph& g) { ++g.parameters[0].dims[0]; }},
      {"a statistic's momentum", [](Graph& g) { g.statistics[0].momentum = 0.5f; }},
  }));
  CAPTURE(what);
  const Graph before = with_every_operation();
  Graph after = before;

  change(after);

  CHECK(after.structure_hash() != before.structure_hash());
}

TEST_CASE("structure_hash: initial values and weight decay do not change it") {
  const Graph before = with_every_operation();
  Graph after = before;
  after.parameters[0].initial.value += 1;
  after.parameters[0].decay = !after.parameters[0].decay;

  CHECK(after.structure_hash() == before.structure_hash());
}
