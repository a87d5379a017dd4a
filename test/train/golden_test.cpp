// Our networks against torchvision's, which test/parity/write_golden.py ran on the same weights and
// images: what it found is in test/golden/.
#include <cstdio>
#include <fstream>
#include <map>
#include <sstream>

#include "support/catch.hpp"
#include "support/named_values.hpp"
#include "support/recipe_run.hpp"
#include "support/sanitized.hpp"

using namespace ringtrain;

namespace {

const RecipeRun resnet18{"resnet18", 64, 4, 1000, OptimizerKind::nesterov, 0.01};
const RecipeRun resnet50{"resnet50", 64, 4, 1000, OptimizerKind::momentum, 0.01};
const RecipeRun inception_v3{"inception_v3", 299, 2, 1001, OptimizerKind::rmsprop, 0.045};

/// By the names of the golden files.
using Probes = std::map<std::string, named::Probe>;

void fill_by_names(const Graph& graph, const TrainingState& state) {
  auto values = state.copy();  // parameters, statistics, slots
  named::fill(graph, values[0], values[1]);
  state.copy_from(values);
}

Probes probes_of(RecipeRun run, const std::string& backend) {
  run.backend = backend;
  const GivenImages images({run.extent, run.extent}, run.classes,
                           named::images(run.batch, run.extent),
                           named::labels(run.batch, run.classes));
  Probes probes;
  run_recipe(run, images, fill_by_names,
             [&](const std::string& name, const auto&, std::span<const float> values) {
               probes[name].add(name, values);
             });
  return probes;
}

// Checks the lines of a model's golden file whose names begin with `first`; how many there are.
int check(const RecipeRun& run, const Probes& probes, const std::string& first, double tolerance) {
  std::ifstream file(std::string(GOLDEN) + "/" + run.model + ".txt");
  std::string line, name;
  std::getline(file, line);  // says where the others come from
  int checked = 0;
  while (std::getline(file, line)) {
    double norm = 0, product = 0;
    std::istringstream(line) >> name >> norm >> product;
    if (!name.starts_with(first)) continue;
    CAPTURE(name, norm, product);
    REQUIRE(probes.contains(name));
    CHECK(std::abs(probes.at(name).norm() - norm) <= tolerance * norm);
    CHECK(std::abs(probes.at(name).product() - product) <= tolerance * norm);
    ++checked;
  }
  return checked;
}

}  // namespace

// A sanitizer makes it slow, and small networks run through the same loops.
TEST_CASE("golden: the networks are torchvision's to the last digits of its fp64",
          "[unsanitized]") {
  const auto [run, gradients, statistics, tolerance] =
      GENERATE(table<RecipeRun, int, int, double>({{resnet18, 62, 40, 1e-5},
                                                   {resnet50, 161, 106, 1e-5},
                                                   // its momentum moves them by 1e-3 only, in fp32
                                                   {inception_v3, 196, 192, 1e-3}}));
  CAPTURE(run.model);

  const Probes probes = probes_of(run, "reference");

  CHECK(check(run, probes, "evaluation/loss", 1e-6) == 1);
  CHECK(check(run, probes, "step1/loss", 1e-6) == 1);
  CHECK(check(run, probes, "step1/gradients/", 1e-6) == gradients);
  CHECK(check(run, probes, "step1/statistics/", tolerance) == statistics);
}

// In fp32 a ReLU may change sides by rounding, other ones on other CPUs and in other builds, which
// gradients show: hence their tolerance. What is sharp about them is the test above.
TEST_CASE("golden: on oneDNN the networks are torchvision's, in evaluation and training") {
  const auto [run, gradients, statistics] = GENERATE(table<RecipeRun, int, int>(
      {{resnet18, 62, 40}, {resnet50, 161, 106}, {inception_v3, 196, 192}}));
  CAPTURE(run.model);
  if (sanitized && run.model == "resnet50") return;  // the steps of the other two

  const Probes probes = probes_of(run, "onednn");

  CHECK(check(run, probes, "evaluation/", 1e-4) == 2);
  CHECK(check(run, probes, "step1/loss", 1e-4) == 1);
  CHECK(check(run, probes, "step1/logits", 3e-4) == 1);
  CHECK(check(run, probes, "step1/gradients/", 0.2) == gradients);
  CHECK(check(run, probes, "step1/statistics/", 2e-3) == statistics);
}
