// Whole networks with activations in bf16 against the same in fp32, both on oneDNN.
#include <algorithm>
#include <cmath>
#include <span>

#include "compute/onednn/program.hpp"
#include "ringtrain/model/passes.hpp"
#include "ringtrain/model/zoo.hpp"
#include "support/catch.hpp"
#include "support/random_batch.hpp"
#include "support/shrink.hpp"

using namespace ringtrain;
using namespace ringtrain::model;

namespace {

compute::Schedule schedule_of(const Graph& graph, int batch, const compute::Backend& backend) {
  return make_schedule(graph, batch, Mode::training, 0.1f,
                       [&](const compute::Schedule& s, const compute::Step& step) {
                         return backend.supports(s, step);
                       });
}

struct OnednnStep {
  double loss;
  std::vector<float> gradients;
  std::vector<std::string> kernels;
};

// Gives what BatchNorm normalises a mean of two deviations. At initial values a deep network is
// chaotic: ReLUs that change sides turn the gradients of its first layers, whatever rounded them.
void open_relus(const Graph& graph, std::span<float> parameters) {
  const auto ranges = graph.parameter_ranges();
  for (std::size_t p = 0; p < ranges.size(); ++p)
    if (graph.parameters[p].role == Parameter::Role::beta)
      std::ranges::fill(parameters.subspan(ranges[p].first, ranges[p].count), 2.f);
}

OnednnStep one_step(const Graph& graph, const Batch& batch, Element element) {
  const auto backend = compute::make_onednn_backend(nullptr, element);
  const compute::Schedule schedule = schedule_of(graph, batch.size(), *backend);
  Memory& memory = backend->memory();
  const Buffer parameters = memory.allocate(schedule.parameters),
               gradients = memory.allocate(schedule.parameters),
               statistics = memory.allocate(schedule.statistics),
               batch_statistics = memory.allocate(schedule.statistics);
  initialise(graph, 1, parameters.view().host(), statistics.view().host());
  open_relus(graph, parameters.view().host());
  const auto program =
      backend->compile(schedule, {parameters, gradients, statistics, batch_statistics}, 1);
  const double loss = program->run(batch, 1.0 / batch.size(), nullptr).loss;
  const auto values = gradients.view().host();
  return {loss,
          {values.begin(), values.end()},
          dynamic_cast<const compute::onednn::OnednnProgram&>(*program).implementations()};
}

// Images that differ: of noise alone a deep network makes nearly the same of each, and BatchNorm
// then magnifies what rounding leaves.
Batch waves(int images, int extent) {
  Batch batch = random_batch(images, extent, extent, 3, 10);
  for (std::size_t i = 0; i < batch.images.size(); ++i) {
    const std::size_t c = i % 3, x = i / 3 % extent, y = i / 3 / extent % extent,
                      n = i / 3 / extent / extent;
    const double angle = 0.7 * double(n) + double(c), frequency = 0.03 * double(n + 1);
    const double wave =
        std::sin(frequency * (std::cos(angle) * double(x) + std::sin(angle) * double(y)) + angle);
    batch.images[i] =
        static_cast<std::uint8_t>(std::lround(127 + 100 * wave + 20 * std::cos(3 * angle)));
  }
  return batch;
}

double cosine(std::span<const float> a, std::span<const float> b) {
  double ab = 0, aa = 0, bb = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    ab += double(a[i]) * b[i];
    aa += double(a[i]) * a[i];
    bb += double(b[i]) * b[i];
  }
  return ab / std::sqrt(aa * bb);
}

}  // namespace

TEST_CASE("bf16: gradients of whole networks point where fp32's do", "[unsanitized]") {
  if (!compute::cpu_trains_in(Element::bf16)) skip_test("this CPU has neither AVX512_BF16 nor AMX");
  struct Case {
    const char* model;
    int extent, batch;
  };
  const Case c = GENERATE(Case{"resnet20", 32, 16}, Case{"resnet50", 96, 8},
                          Case{"inception_v3", 299, 4}, Case{"cifar10_cnn", 24, 16});
  CAPTURE(c.model);
  Graph graph = make_model(c.model, 10).graph;
  if (graph.tensors[0].height != c.extent) graph = Shrunk(std::move(graph), c.extent, 1).graph();
  const Batch batch = waves(c.batch, c.extent);

  const OnednnStep exact = one_step(graph, batch, Element::fp32),
                   rounded = one_step(graph, batch, Element::bf16);

  CHECK(rounded.loss == Approx(exact.loss).epsilon(1e-2));
  CHECK(cosine(rounded.gradients, exact.gradients) >= 0.99);
  for (const std::string& kernel : rounded.kernels) {
    CAPTURE(kernel);
    CHECK(kernel.find("ref") == std::string::npos);
    CHECK(kernel.find("gemm") == std::string::npos);
  }
}

TEST_CASE("bf16: an image takes at most 0.6 of the memory that it takes in fp32") {
  if (!compute::cpu_trains_in(Element::bf16)) skip_test("this CPU has neither AVX512_BF16 nor AMX");
  const char* model = GENERATE("cifar10_cnn", "resnet20", "resnet50", "inception_v3");
  CAPTURE(model);
  const Graph graph = make_model(model, 10).graph;
  const auto bytes = [&](int batch, Element element) {
    const auto backend = compute::make_onednn_backend(nullptr, element);
    const compute::HostNeeds needs =
        compute::host_needs(schedule_of(graph, batch, *backend), nullptr, element);
    return double(needs.activations + needs.workspace);
  };
  // Of large batches: for small ones oneDNN takes other algorithms on some CPUs, whose scratch
  // memory is larger the fewer images there are (inception_v3 in fp32 on Zen 4: 247 MB of 16, 127
  // of 32).
  const auto bytes_of_image = [&](Element element) {
    return (bytes(64, element) - bytes(32, element)) / 32;
  };

  CHECK(bytes_of_image(Element::bf16) <= 0.6 * bytes_of_image(Element::fp32));
}
