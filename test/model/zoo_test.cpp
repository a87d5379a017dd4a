#include "ringtrain/model/zoo.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <functional>

#include "ringtrain/base/error.hpp"

using namespace ringtrain;

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

  CHECK(make_model(name, default_classes(name)).graph.parameter_count() == parameters);
}

TEST_CASE("zoo: multiply-adds of one image are the published ones") {
  CHECK(make_model("cifar10_cnn", 10).graph.multiply_adds() / 1e6 == Approx(18.5).epsilon(0.01));
  CHECK(make_model("resnet50", 1000).graph.multiply_adds() / 1e9 == Approx(4.089).epsilon(0.001));
  CHECK(make_model("resnet50", 1000).training_flops() / 1e9 == Approx(24.3).epsilon(0.002));
  const Model inception = make_model("inception_v3", 1000);  // with the auxiliary head
  CHECK(inception.graph.multiply_adds() / 1e9 == Approx(5.713 + 0.0057).epsilon(0.0003));
  CHECK(inception.training_flops() / 1e9 == Approx(34.3).epsilon(0.002));
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
  std::vector<Shape> joined;
  for (const Node& node : graph.nodes)
    if (std::holds_alternative<Beside>(node.operation) && node.inputs.size() > 2)
      joined.push_back(graph.tensors[node.output]);

  CHECK(joined == std::vector<Shape>{{1, 35, 35, 256},
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
  CHECK_THROWS_WITH(make_model("resnet5", 10),
                    Catch::Contains("resnet50") || Catch::Contains("resnet56"));
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

TEST_CASE("structure_hash: differs between models and class counts, and repeats") {
  const auto hash = [](const std::string& name, int classes) {
    return make_model(name, classes).graph.structure_hash();
  };

  CHECK(hash("resnet20", 10) == hash("resnet20", 10));
  CHECK(hash("resnet20", 10) != hash("resnet20", 11));
  CHECK(hash("resnet20", 10) != hash("resnet32", 10));
}
