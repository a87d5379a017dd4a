// Layers of the networks against timm's: what the group_matcher() of its ResNet, EfficientNet and
// ConvNeXt says, by hand.
#include "ringtrain/model/layer_groups.hpp"

#include <map>
#include <string>

#include "ringtrain/model/model_file.hpp"
#include "ringtrain/model/zoo.hpp"
#include "support/catch.hpp"

using namespace ringtrain;
using namespace ringtrain::model;

namespace {

/// The depth of all parameters whose names begin so; the longest beginning counts.
using Depths = std::map<std::string, int>;

int depth_in(const Depths& depths, const std::string& name) {
  std::size_t longest = 0;
  int depth = -1;
  for (const auto& [beginning, at] : depths)
    if (name.starts_with(beginning) && beginning.size() > longest) {
      longest = beginning.size();
      depth = at;
    }
  return depth;
}

void check_depths(const Graph& graph, const Depths& depths) {
  const std::vector<int> found = layer_depths(graph);
  REQUIRE(found.size() == graph.parameters.size());
  for (std::size_t p = 0; p < found.size(); ++p) {
    CAPTURE(graph.parameters[p].name);
    CHECK(found[p] == depth_in(depths, graph.parameters[p].name));
  }
}

std::vector<std::string> head_names(const Graph& graph) {
  std::vector<std::string> names;
  for (const ParameterId id : head_parameters(graph))
    names.push_back(graph.parameters[static_cast<std::size_t>(id)].name);
  return names;
}

Graph network_of_lines(const std::string& layers) {
  const std::string text = "model small classes=3\n" + layers;
  return read_model_file(text, "small.model", std::nullopt, [](const Recipe&) {}).graph;
}

}  // namespace

TEST_CASE("layers: a ResNet has its stem, a layer for each block, and the head") {
  check_depths(make_model("resnet50").graph, {{"conv1.", 0},
                                              {"bn1.", 0},
                                              {"layer1.0.", 1},
                                              {"layer1.1.", 2},
                                              {"layer1.2.", 3},
                                              {"layer2.0.", 4},
                                              {"layer2.1.", 5},
                                              {"layer2.2.", 6},
                                              {"layer2.3.", 7},
                                              {"layer3.0.", 8},
                                              {"layer3.1.", 9},
                                              {"layer3.2.", 10},
                                              {"layer3.3.", 11},
                                              {"layer3.4.", 12},
                                              {"layer3.5.", 13},
                                              {"layer4.0.", 14},
                                              {"layer4.1.", 15},
                                              {"layer4.2.", 16},
                                              {"fc.", 17}});
}

TEST_CASE("layers: EfficientNet's last convolution is of its last block") {
  check_depths(make_model("efficientnet_lite0").graph,
               {{"conv_stem.", 0},   {"bn1.", 0},         {"blocks.0.0.", 1},  {"blocks.1.0.", 2},
                {"blocks.1.1.", 3},  {"blocks.2.0.", 4},  {"blocks.2.1.", 5},  {"blocks.3.0.", 6},
                {"blocks.3.1.", 7},  {"blocks.3.2.", 8},  {"blocks.4.0.", 9},  {"blocks.4.1.", 10},
                {"blocks.4.2.", 11}, {"blocks.5.0.", 12}, {"blocks.5.1.", 13}, {"blocks.5.2.", 14},
                {"blocks.5.3.", 15}, {"blocks.6.0.", 16}, {"conv_head.", 16},  {"bn2.", 16},
                {"classifier.", 17}});
}

TEST_CASE("layers: ConvNeXt's downsampling is of the next block, its last norm of the head") {
  check_depths(
      make_model("convnext_tiny").graph,
      {{"features.0.", 0},    {"features.1.0.", 1},  {"features.1.1.", 2},  {"features.1.2.", 3},
       {"features.2.", 4},    {"features.3.0.", 4},  {"features.3.1.", 5},  {"features.3.2.", 6},
       {"features.4.", 7},    {"features.5.0.", 7},  {"features.5.1.", 8},  {"features.5.2.", 9},
       {"features.5.3.", 10}, {"features.5.4.", 11}, {"features.5.5.", 12}, {"features.5.6.", 13},
       {"features.5.7.", 14}, {"features.5.8.", 15}, {"features.6.", 16},   {"features.7.0.", 16},
       {"features.7.1.", 17}, {"features.7.2.", 18}, {"classifier.", 19}});
}

TEST_CASE("layers: a network without blocks has one for each convolution and matrix product") {
  check_depths(
      make_model("cifar10_cnn").graph,
      {{"conv1.", 1}, {"conv2.", 2}, {"local3.", 3}, {"local4.", 4}, {"softmax_linear.", 5}});
}

TEST_CASE("layers: an auxiliary head is of the head, and counts no block") {
  const Graph graph = make_model("inception_v3").graph;
  const std::vector<int> depths = layer_depths(graph);
  const int head = depths.back();

  for (std::size_t p = 0; p < depths.size(); ++p) {
    const std::string& name = graph.parameters[p].name;
    CAPTURE(name);
    CHECK((depths[p] == head) == (name.starts_with("AuxLogits.") || name.starts_with("fc.")));
    if (name.starts_with("Mixed_6e.")) CHECK(depths[p] == head - 4);
    if (name.starts_with("Mixed_7a.")) CHECK(depths[p] == head - 3);
  }
  CHECK(head_names(graph) == std::vector<std::string>{"AuxLogits.fc.weight", "AuxLogits.fc.bias",
                                                      "fc.weight", "fc.bias"});
}

TEST_CASE("layers: a pool inside a block does not begin the head") {
  const std::string pool = GENERATE("", "global_pool\n");
  const std::string squeezed =
      "block squeezed\n"
      "  kept = relu\n"
      "  global_pool\n"
      "  se = convolution channels=4 kernel=1\n"
      "  factors = sigmoid\n"
      "  scale kept factors\n"
      "end\n"
      "input size=4\n"
      "stem = convolution channels=4 kernel=1\n"
      "a = squeezed\n"
      "b = squeezed\n" +
      pool +
      "fc = matrix_product outputs=$classes\n"
      "loss\n";

  check_depths(network_of_lines(squeezed), {{"stem.", 0}, {"a.", 1}, {"b.", 2}, {"fc.", 3}});
}

TEST_CASE("layers: the head lies before a factor, too, and may be none") {
  CHECK(head_names(make_model("resnet9").graph) == std::vector<std::string>{"linear.weight"});
  CHECK(head_names(network_of_lines("input size=4\n"
                                    "c = convolution channels=$classes kernel=1\n"
                                    "global_pool\n"
                                    "loss\n"))
            .empty());
}
