// Engines that compute something else than they should are found before training.
#include "compute/cuda/engines/fusion_check.hpp"

#include "compute/cuda/engines/convolution.hpp"
#include "compute/cuda/engines/operation_graph.hpp"
#include "ringtrain/model/passes.hpp"
#include "ringtrain/model/zoo.hpp"
#include "support/catch.hpp"
#include "support/host_gpu/host_gpu.hpp"
#include "support/shrink.hpp"

using namespace ringtrain;
using namespace ringtrain::compute;

namespace {

using Kind = cuda::OperationGraph::Kind;
using host_gpu::EngineFault;

bool has(const cuda::OperationGraph& graph, Kind kind) {
  return std::ranges::any_of(graph.operations(),
                             [&](const auto& operation) { return operation.kind == kind; });
}

// Fused engines of this kind, and none of their parts.
bool is_fused(const cuda::OperationGraph& graph, Kind convolution) {
  return has(graph, convolution) && graph.operations().size() > 1;
}

// Faults of the simulated GPU, until this goes.
struct Faults {
  explicit Faults(host_gpu::EngineFaultOf fault) { host_gpu::set_engine_fault(std::move(fault)); }
  ~Faults() { host_gpu::set_engine_fault({}); }
};

Schedule schedule_of(const Backend& backend, const std::string& name) {
  const model::Model model = model::make_model(name, 10);
  const ringtrain::model::Graph graph =
      name == "resnet20" ? model.graph : Shrunk(model.graph, 64, 8).graph();
  return model::make_schedule(
      graph, 3, model::Mode::training, 0.1f,
      [&](const Schedule& s, const Step& step) { return backend.supports(s, step); });
}

std::size_t fused_steps(const Schedule& schedule) {
  return std::ranges::count_if(schedule.steps, [&](const Step& step) {
    return cuda::fused_request(schedule, step, Element::fp16).has_value();
  });
}

}  // namespace

TEST_CASE("fusion check: what is right is accepted, each request once") {
  host_gpu::set_seed(1);
  const std::string name = GENERATE("resnet20", "resnet50");
  const auto backend = make_gpu_backend({.element = Element::fp16});
  const Schedule schedule = schedule_of(*backend, name);
  REQUIRE(fused_steps(schedule) > 20);

  CHECK(backend->check_fusions(schedule).empty());
  const std::size_t engines = host_gpu::counts().engines;
  CHECK(engines > 0);
  CHECK(backend->check_fusions(schedule).empty());

  CHECK(host_gpu::counts().engines == engines);
  CHECK(host_gpu::complaints() == std::vector<std::string>{});
}

TEST_CASE("fusion check: engines that are silently wrong, or refused, are taken apart") {
  host_gpu::set_seed(1);
  const Kind convolution = GENERATE(Kind::convolution, Kind::input_gradient, Kind::weight_gradient);
  const EngineFault fault =
      GENERATE(EngineFault::silent, EngineFault::off, EngineFault::beside, EngineFault::refused);
  const auto backend = make_gpu_backend({.element = Element::fp16});
  const Schedule before = schedule_of(*backend, "resnet20");
  CAPTURE(int(convolution), int(fault));
  const Faults faults([&](const cuda::OperationGraph& graph, std::size_t) {
    return is_fused(graph, convolution) ? fault : EngineFault::none;
  });

  const std::vector<GpuRefusal> refusals = backend->check_fusions(before);
  backend->refuse(refusals);
  const Schedule after = schedule_of(*backend, "resnet20");

  REQUIRE(!refusals.empty());
  CHECK(!refusals.front().why.empty());
  CHECK(fused_steps(after) < fused_steps(before));
  for (const Step& step : after.steps) {
    const auto request = cuda::fused_request(after, step, Element::fp16);
    if (request) CHECK(!is_fused(request->graph(), convolution));
  }
  CHECK(backend->check_fusions(after).empty());
}

TEST_CASE("fusion check: where another proposal of cuDNN's is right, that one is taken") {
  host_gpu::set_seed(1);
  const auto backend = make_gpu_backend({.element = Element::fp16});
  const Schedule schedule = schedule_of(*backend, "resnet20");
  const std::string before = backend->engines().fingerprint;
  const Faults faults([](const cuda::OperationGraph& graph, std::size_t place) {
    return is_fused(graph, Kind::convolution) && place == 0 ? EngineFault::off : EngineFault::none;
  });

  CHECK(backend->check_fusions(schedule).empty());

  CHECK(backend->engines().fingerprint != before);
  CHECK(fused_steps(schedule_of(*backend, "resnet20")) == fused_steps(schedule));
}
