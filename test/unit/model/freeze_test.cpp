#include <algorithm>
#include <string>

#include "ringtrain/base/error.hpp"
#include "ringtrain/model/zoo.hpp"
#include "support/catch.hpp"
#include "unit/model/schedules.hpp"

using namespace ringtrain;
using namespace ringtrain::model;
using Catch::Contains;

namespace {

Graph network_with_blocks() {
  GraphBuilder g;
  compute::TensorId x = g.input(8, 8, 3, {compute::Normalisation::standardise_image});
  x = g.relu(g.batch_norm("stem.bn", g.convolution("stem.conv", x, {.channels = 4}), {}));
  x = g.layer_norm("blocks.0.norm", g.convolution("blocks.0.conv", x, {.channels = 6}), 1e-6f);
  x = g.convolution("blocks.10.conv", x, {.channels = 6, .bias = 0.0});
  g.loss(g.matrix_product("fc", g.global_pool(x), 3, {}, 0.0, true));
  return std::move(g).finish();
}

std::string frozen_by(const std::string& patterns) {
  Graph graph = network_with_blocks();
  freeze(graph, patterns);
  std::string names;
  for (const Parameter& p : graph.parameters) {
    if (p.frozen) names += p.name + " ";
    if (p.held) names += "(" + p.name + ") ";
  }
  for (const Statistic& s : graph.statistics)
    if (s.frozen) names += s.name;
  return names;
}

std::string refusal(const std::string& patterns) {
  try {
    return frozen_by(patterns);
  } catch (const Error& failure) {
    CHECK(failure.code() == Exit::usage);
    return failure.what();
  }
}

bool has_gradient_of(const compute::Schedule& schedule, const compute::ParameterRange& range) {
  return std::ranges::any_of(schedule.steps, [&](const compute::Step& step) {
    const auto written = compute::gradients_written(step);
    return std::ranges::find(written, range) != written.end();
  });
}

}  // namespace

TEST_CASE("freeze: patterns of names and of modules, the last that matches counts") {
  CHECK(frozen_by("stem") == "stem.conv.weight stem.bn.weight stem.bn.bias stem.bn");
  CHECK(frozen_by("*.conv") ==
        "stem.conv.weight blocks.0.conv.weight blocks.10.conv.weight "
        "blocks.10.conv.bias ");
  CHECK(frozen_by("*,!blocks,!fc.bias,blocks.10.conv.weight,blocks.10.conv.bias") ==
        "stem.conv.weight stem.bn.weight stem.bn.bias blocks.10.conv.weight blocks.10.conv.bias "
        "(fc.weight) stem.bn");
}

TEST_CASE("freeze: a layer that is frozen in part is held, and a LayerNorm above what learns") {
  CHECK(frozen_by("stem.bn.weight") == "(stem.bn.weight) ");
  CHECK(frozen_by("blocks.0.norm") == "(blocks.0.norm.weight) (blocks.0.norm.bias) ");
  CHECK(frozen_by("stem,blocks.0") ==
        "stem.conv.weight stem.bn.weight stem.bn.bias blocks.0.conv.weight blocks.0.norm.weight "
        "blocks.0.norm.bias stem.bn");
}

TEST_CASE("freeze: what learns lies in front, and backward ends at the lowest of it") {
  Graph graph = network_with_blocks();
  const std::uint64_t hash = graph.structure_hash();
  const double flops = graph.training_flops(), forward = 2 * graph.multiply_adds();
  freeze(graph, "*,!blocks.10");
  const auto ranges = graph.parameter_ranges();
  const compute::Schedule schedule = make_schedule(graph, 2, Mode::training, 0, everything);

  CHECK(graph.structure_hash() == hash);
  CHECK(graph.learning_count() == 6 * 6 + 6);
  CHECK(graph.moving_count() == 0);
  for (std::size_t p = 0; p < ranges.size(); ++p) {
    CAPTURE(graph.parameters[p].name);
    CHECK((ranges[p].end() <= graph.learning_count()) == !graph.parameters[p].frozen);
    CHECK(has_gradient_of(schedule, ranges[p]) == !graph.parameters[p].frozen);
  }
  CHECK(steps_named(schedule, "ConvolutionInputGradient") == 0);
  CHECK(steps_named(schedule, "MatrixProductInputGradient") == 1);
  CHECK(steps_named(schedule, "LayerNormBackward") == 0);
  CHECK(compute::finality(schedule).back() == 0);
  // forward; dW of the block, and dx of fc
  CHECK(graph.training_flops() == forward + 2 * (64 * 36 + 18));
  CHECK(graph.training_flops() < flops);
}

TEST_CASE("freeze: a pattern of nothing, and one that leaves nothing, are told") {
  CHECK_THAT(refusal("blocks.1"),
             Contains("--freeze blocks.1: matches no parameter") && Contains("stem.conv"));
  CHECK_THAT(refusal("*"), Contains("leaves nothing to learn") && Contains("'*,!fc'"));
}
