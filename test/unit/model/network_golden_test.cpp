// Our networks against those of torchvision, timm and others, which test/parity/networks_parity.py
// ran in fp64 on the same weights and images: what it found is in test/golden/networks.txt.
#include <fstream>
#include <regex>
#include <sstream>

#include "support/catch.hpp"
#include "support/model_files.hpp"
#include "support/named_values.hpp"
#include "support/reference_run.hpp"

using namespace ringtrain;
using namespace ringtrain::model;

namespace {

// The norm of a result, and its product with a vector made from its name.
struct GoldenLine {
  std::string name;
  double norm, product;
};
struct GoldenNetwork {
  std::string name;
  int extent;
  std::vector<GoldenLine> lines;
};

std::vector<GoldenNetwork> golden_networks() {
  std::ifstream file(GOLDEN "/networks.txt");
  std::vector<GoldenNetwork> networks;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string first, name;
    words >> first;
    if (first == "#") continue;
    if (first == "network") {
      GoldenNetwork& network = networks.emplace_back();
      words >> network.name >> network.extent;
    } else {
      GoldenLine& result = networks.back().lines.emplace_back(GoldenLine{first, 0, 0});
      words >> result.norm >> result.product;
    }
  }
  return networks;
}

Graph at_extent(const std::string& name, int extent) {
  const std::string text =
      std::regex_replace(std::string(model_text(name)), std::regex("\ninput size=[0-9x]+"),
                         "\ninput size=" + std::to_string(extent));
  Graph graph = read_model(text).graph;
  for (Node& node : graph.nodes)
    if (auto* dropout = std::get_if<DropoutLayer>(&node.operation)) dropout->how.keep = 1;
  return graph;
}

std::vector<std::uint8_t> images_of(int count, int extent, int channels) {
  const std::vector<std::uint8_t> colours = named::images(count, extent);
  std::vector<std::uint8_t> images;
  for (std::size_t i = 0; i < colours.size(); ++i)
    if (static_cast<int>(i % 3) < channels) images.push_back(colours[i]);
  return images;
}

ReferenceRun run_of(const Graph& graph) {
  constexpr int batch = 2;
  std::vector<float> values(graph.parameter_count() + graph.statistic_count());
  named::fill(graph, std::span(values).first(graph.parameter_count()),
              std::span(values).subspan(graph.parameter_count()));
  const int classes = graph.tensors[graph.nodes.back().inputs[0]].channels;
  return {graph, values, images_of(batch, graph.tensors[0].height, graph.tensors[0].channels),
          named::labels(batch, classes)};
}

using Results = std::map<std::string, std::vector<double>>;

Results results_of(const Graph& graph) {
  const ReferenceRun run = run_of(graph);
  Results results{{"evaluation/logits", run.evaluation_logits},
                  {"evaluation/loss", {run.evaluation_loss}},
                  {"step/logits", run.logits},
                  {"step/loss", {run.loss}}};
  const auto ranges = graph.parameter_ranges();
  for (std::size_t p = 0; p < ranges.size(); ++p)
    results["step/gradients/" + graph.parameters[p].name] = {
        run.gradients.begin() + static_cast<std::ptrdiff_t>(ranges[p].first),
        run.gradients.begin() + static_cast<std::ptrdiff_t>(ranges[p].end())};
  return results;
}

}  // namespace

// A sanitizer makes it slow, and small networks run through the same loops.
TEST_CASE("networks: logits, losses and gradients are those of torchvision, timm and others",
          "[unsanitized]") {
  const GoldenNetwork golden = GENERATE(from_range(golden_networks()));
  CAPTURE(golden.name);
  const Results results = results_of(at_extent(golden.name, golden.extent));

  CHECK(golden.lines.size() > 6);
  for (const auto& [name, norm, product] : golden.lines) {
    CAPTURE(name);
    REQUIRE(results.contains(name));
    const std::vector<float> values(results.at(name).begin(), results.at(name).end());
    named::Probe probe;
    probe.add(name, values);
    CHECK(std::abs(probe.norm() - norm) <= 1e-6 * norm);
    CHECK(std::abs(probe.product() - product) <= 1e-6 * norm);
  }
}
