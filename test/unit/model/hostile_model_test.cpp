// What a model file of at most 1 KB says costs its reader no more memory than its limits allow.
#include <fmt/core.h>

#include "support/catch.hpp"
#include "support/memory_limit.hpp"
#include "support/model_files.hpp"

using namespace ringtrain;
using namespace ringtrain::model;
using Catch::Contains;
using Catch::Matchers::StartsWith;

namespace {

const std::string hostile_head = "model m classes=10\ninput size=8\n";
const std::string hostile_tail = "fc = matrix_product outputs=$classes\nloss\n";

std::string read_hostile(const std::string& text) {
  REQUIRE(text.size() <= 1024);
  return in_limited_memory([&] {
    const Model model = read_model(text);
    return fmt::format("{} layers", model.graph.nodes.size());
  });
}

}  // namespace

TEST_CASE("hostile model file: blocks of blocks come to no more layers than are allowed") {
  std::string text = hostile_head + "block b0\nr{0..9} = relu\nend\n";
  for (int i = 1; i <= 12; ++i) text += fmt::format("block b{}\nr{{0..9}} = b{}\nend\n", i, i - 1);

  CHECK_THAT(read_hostile(text + "x = b12\n" + hostile_tail),
             StartsWith("refused: ") && Contains("a network has at most"));
}

TEST_CASE("hostile model file: ranges, names and numbers") {
  const auto [lines, why] = GENERATE(table<const char*, const char*>({
      {"r{0..9999} = relu", "a network has at most"},
      {"r{0..99999999999} = relu", "each end of the range"},
      {"c = convolution channels=1000000 kernel=512", "weights"},
      {"c = convolution channels=99999999999999 kernel=3", "must be a whole number"},
      {"m = matrix_product outputs=1000000\nn = matrix_product outputs=1000000", "weights"},
      {"input size=4096", "input"},
  }));
  CAPTURE(lines);

  CHECK_THAT(read_hostile(hostile_head + lines + "\n" + hostile_tail),
             StartsWith("refused: ") && Contains(why));
}

TEST_CASE("hostile model file: weights are counted, not taken") {
  CHECK(read_hostile("model m classes=1000000\ninput size=8\nm = matrix_product outputs=1000\n"
                     "fc = matrix_product outputs=$classes\nloss\n") == "4 layers");
}
