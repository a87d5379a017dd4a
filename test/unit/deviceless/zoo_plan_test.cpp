#include <algorithm>

#include "ringtrain/compute/gpu_planner.hpp"
#include "ringtrain/model/passes.hpp"
#include "ringtrain/model/zoo.hpp"
#include "support/catch.hpp"

using namespace ringtrain;

namespace {

constexpr int batch = 256;

compute::Schedule schedule_of(const std::string& model, model::Mode mode,
                              compute::GpuPlanner& planner, int batch = ::batch) {
  const model::Model made = model::make_model(model);
  return model::make_schedule(made.graph, batch, mode, 0.1f,
                              [&](const compute::Schedule& s, const compute::Step& step) {
                                return planner.supports(s, step);
                              });
}

double megabytes_per_image(const compute::GpuPlan& plan) {
  return double(plan.bytes_moved()) / batch / 1e6;
}

// Of those behind the first dozen a few, for three GPUs: the others have the same operations.
std::vector<std::string> planned_networks(std::string_view gpu, Element element) {
  std::vector<std::string> names = model::model_names();
  names.resize(12);
  const bool is_asked = element == Element::fp16 && (gpu == "h100" || gpu == "a100" || gpu == "t4");
  if (is_asked)
    for (const char* name : {"efficientnet_b0", "regnet_y_400mf"}) names.emplace_back(name);
  return names;
}

}  // namespace

TEST_CASE("every step of every model has a plan on every GPU we know") {
  const auto element = GENERATE(Element::fp16, Element::bf16, Element::fp32);
  const auto gpu = GENERATE(from_range(compute::gpu_models()));
  if (!gpu.has(element)) return;
  const auto planner = compute::make_gpu_planner(gpu, element);
  const int images = gpu.memory_bytes < 50e9 ? 32 : batch;
  for (const std::string& model : planned_networks(gpu.name, element))
    for (const model::Mode mode : {model::Mode::training, model::Mode::evaluation}) {
      // what an evaluation launches is planned for one GPU
      if (mode == model::Mode::evaluation && (element != Element::fp16 || gpu.name != "h100"))
        continue;
      CAPTURE(model, mode == model::Mode::training, name_of(element), gpu.name);
      const compute::Schedule schedule = schedule_of(model, mode, *planner, images);

      const compute::GpuPlan plan = planner->plan(schedule);

      CHECK(plan.steps.size() == schedule.steps.size());
      CHECK(
          std::ranges::none_of(plan.steps, [](const auto& launches) { return launches.empty(); }));
      CHECK(double(plan.activations + plan.workspace) < gpu.memory_bytes);
    }
}

// With the optimizer 3.9 more: 263, where the goal is 290. Slices and merged convolutions took
// off 87.
TEST_CASE("Inception v3 in fp16 moves at most 259 MB an image") {
  const auto planner = compute::make_gpu_planner(compute::gpu_model("h100"), Element::fp16);

  const compute::GpuPlan plan =
      planner->plan(schedule_of("inception_v3", model::Mode::training, *planner));

  CHECK(megabytes_per_image(plan) <= 259);
  CHECK(megabytes_per_image(plan) > 200);
}

// With the optimizer 2.2 more: 265, where the goal is 265. The image in rows of blocks is 3.7 of
// it.
TEST_CASE("ResNet-50 in fp16 moves at most 263 MB an image") {
  const auto planner = compute::make_gpu_planner(compute::gpu_model("h100"), Element::fp16);

  const compute::GpuPlan plan =
      planner->plan(schedule_of("resnet50", model::Mode::training, *planner));

  CHECK(megabytes_per_image(plan) <= 263);
  CHECK(megabytes_per_image(plan) > 200);  // less would be a launch that was forgotten
}
