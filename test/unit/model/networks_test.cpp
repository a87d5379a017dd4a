// The networks of torchvision, timm and others: their published sizes, and that no kernel of theirs
// is a slow one.
#include <cmath>

#include "compute/onednn/isa.hpp"
#include "ringtrain/compute/backend.hpp"
#include "ringtrain/model/passes.hpp"
#include "ringtrain/model/zoo.hpp"
#include "support/catch.hpp"
#include "support/sanitized.hpp"

using namespace ringtrain;
using namespace ringtrain::model;

namespace {

struct Published {
  std::string name;
  std::size_t parameters, statistics;  ///< values
  double million_multiply_adds;        ///< of convolutions and matrix products
};

void check_kernels(const Graph& graph, Element element) {
  if (compute::onednn::effective_isa() == compute::onednn::Isa::baseline)
    skip_test("oneDNN has no fast weight gradients for processors without AVX2");
  const auto backend = compute::make_onednn_backend(nullptr, element);
  const compute::Schedule schedule =
      make_schedule(graph, 2, Mode::training, 0.1f,
                    [&](const compute::Schedule& tensors, const compute::Step& step) {
                      return backend->supports(tensors, step);
                    });

  for (const std::string& kernel : compute::host_needs(schedule, nullptr, element).kernels) {
    CAPTURE(kernel);
    CHECK_FALSE(kernel.starts_with("ref"));
  }
}

void check_kernels(const std::string& name, Element element) {
  CAPTURE(name);
  check_kernels(make_model(name).graph, element);
}

/// A stem for images of so many channels, strided or not.
Graph stem(int channels, int stride, int out) {
  GraphBuilder g;
  compute::TensorId x = g.input(20, 18, channels, {compute::Normalisation::standardise_image});
  x = g.convolution("conv", x, {.channels = out, .height = 3, .width = 3, .stride = stride});
  g.loss(g.matrix_product("fc", g.global_pool(g.batch_norm("bn", x, {})), 3, {}, 0.0, true));
  return std::move(g).finish();
}

}  // namespace

TEST_CASE("networks: parameters, statistics and multiply-adds are the published ones") {
  const auto published = GENERATE(values<Published>({
      {"tf_efficientnet_lite0", 4'652'008, 42'016, 385.188},
      {"efficientnet_lite0", 4'652'008, 42'016, 385.188},
      {"regnet_y_400mf", 4'344'144, 27'152, 401.843},
      {"resnext50_32x4d", 25'028'904, 68'224, 4230.480},
      {"wide_resnet50_2", 68'883'240, 68'224, 11398.021},
      {"mobilenet_v3_large", 5'483'032, 24'400, 216.590},
      {"efficientnet_b0", 5'288'548, 42'016, 385.815},
      {"vgg16_bn", 138'365'992, 8'448, 15470.264},
      {"resnet50d", 25'576'264, 53'248, 4328.825},
      {"densenet121", 7'978'856, 83'648, 2834.162},
      {"convnext_tiny", 28'589'128, 0, 4455.531},
      {"tf_efficientnet_lite1", 5'416'680, 53'664, 600.185},
      {"tf_efficientnet_lite2", 6'092'072, 58'096, 859.736},
      {"resnet9", 6'573'120, 4'480, 379.262},
      {"wrn_16_4", 2'748'890, 3'616, 392.612},
      {"resnet18_cifar", 11'173'962, 9'600, 555.423},
      {"fashion_resnet20", 272'186, 1'568, 31.022},
      {"airbench94", 1'971'640, 2'304, 118.147},  // 1,972,792 with gammas that stay 1
  }));
  CAPTURE(published.name);

  const Graph graph = make_model(published.name).graph;

  CHECK(graph.parameter_count() == published.parameters);
  CHECK(graph.statistic_count() == published.statistics);
  CHECK(graph.multiply_adds() / 1e6 == Approx(published.million_multiply_adds).margin(5e-4));
}

TEST_CASE("networks: what torchvision and timm publish weights of has their top-1") {
  for (const std::string& name : model_names()) {
    const Recipe recipe = make_model(name).recipe;
    CAPTURE(name);
    if (recipe.source == "torchvision" || recipe.source == "timm") CHECK(recipe.top1 > 60);
  }
}

// What torch gives in their place is compared by test/parity/networks_parity.py.
TEST_CASE("networks: first values have the mean and deviation that the model file asks for") {
  const auto name = GENERATE("tf_efficientnet_lite0", "regnet_y_400mf", "densenet121");
  const Graph graph = make_model(name).graph;
  std::vector<float> parameters(graph.parameter_count()), statistics(graph.statistic_count());
  initialise(graph, 3, parameters, statistics);

  const auto ranges = graph.parameter_ranges();
  for (std::size_t p = 0; p < ranges.size(); ++p) {
    const Initialiser& how = graph.parameters[p].initial;
    const bool constant = how.kind == Initialiser::Kind::constant;
    const double deviation = constant                                 ? 0
                             : how.kind == Initialiser::Kind::uniform ? how.value / std::sqrt(3.)
                                                                      : how.value;
    CAPTURE(name, graph.parameters[p].name);
    const std::span values = std::span(parameters).subspan(ranges[p].first, ranges[p].count);
    double sum = 0, squares = 0;
    for (const float v : values) sum += v;
    const double count = double(values.size()), mean = sum / count;
    for (const float v : values) squares += (v - mean) * (v - mean);
    const double four_errors = 4 * deviation / std::sqrt(count);
    CHECK(std::abs(mean - (constant ? how.value : 0)) <= four_errors + 1e-6);
    if (count > 100)
      CHECK(std::abs(std::sqrt(squares / count) - deviation) <= four_errors / std::sqrt(2.) + 1e-6);
  }
}

// oneDNN's reference kernels take seconds a call.
TEST_CASE("networks: no kernel of any is one of oneDNN's reference kernels",
          "[unsanitized][kernels]") {
  check_kernels(GENERATE(from_range(model_names())), Element::fp32);
}

TEST_CASE("networks: nor of images of one to four channels", "[unsanitized][kernels]") {
  const int channels = GENERATE(1, 2, 3, 4), stride = GENERATE(1, 2), out = GENERATE(16, 24);
  CAPTURE(channels, stride, out);
  check_kernels(stem(channels, stride, out), Element::fp32);
}

TEST_CASE("networks: nor in bf16", "[unsanitized]") {
  if (!compute::cpu_trains_in(Element::bf16)) skip_test("this CPU has neither AVX512_BF16 nor AMX");
  check_kernels(GENERATE(from_range(model_names())), Element::bf16);
}

TEST_CASE("networks: nor in bf16 of images of one to four channels", "[unsanitized]") {
  if (!compute::cpu_trains_in(Element::bf16)) skip_test("this CPU has neither AVX512_BF16 nor AMX");
  const int channels = GENERATE(1, 2, 3, 4), stride = GENERATE(1, 2), out = GENERATE(16, 24);
  CAPTURE(channels, stride, out);
  check_kernels(stem(channels, stride, out), Element::bf16);
}
