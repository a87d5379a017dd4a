#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <memory>

#include "compute/cuda/bind/launches.hpp"
#include "compute/cuda/kernels/arguments/pool.hpp"
#include "compute/cuda/runtime/device.hpp"
#include "ringtrain/compute/memory_plan.hpp"

namespace ringtrain::compute::cuda {
namespace {

class CudnnPlanner final : public GpuPlanner {
 public:
  CudnnPlanner(const GpuModel& model, Element element, bool deterministic)
      : element_(element),
        engines_(describe_device(device_json(model.name)), {.deterministic = deterministic}) {}

  bool supports(const Schedule& schedule, const Step& step) override {
    return cuda::supports(schedule, step, element_, engines_);
  }
  GpuPlan plan(const Schedule& schedule) override;

 private:
  std::vector<Fusion> fusions(const Schedule& schedule) const;

  const Element element_;
  Engines engines_;
};

std::vector<Fusion> CudnnPlanner::fusions(const Schedule& schedule) const {
  std::map<std::string, Fusion> found;
  for (const Step& step : schedule.steps)
    if (const auto fused = fused_request(schedule, step, element_)) ++found[fused->pattern].made;
  for (const auto& [question, answer] : engines_.answers()) {
    if (answer.engine) continue;
    Fusion& fusion = found[question.first];
    ++fusion.refused;
    fusion.why = answer.why;
  }
  std::vector<Fusion> table;
  for (auto& [what, fusion] : found) {
    fusion.what = what;
    table.push_back(std::move(fusion));
  }
  return table;
}

// What max pools leave for their backward pass: a byte for each number of their result.
std::size_t winner_bytes(const Schedule& schedule) {
  std::size_t bytes = 0;
  for (const Step& step : schedule.steps)
    if (const auto* pool = std::get_if<MaxPoolBackward>(&step))
      if (kernels::has_winners(pool->window)) bytes += schedule.tensors[pool->dy].elements();
  return bytes;
}

GpuPlan CudnnPlanner::plan(const Schedule& schedule) {
  Launches launches(schedule, element_, engines_);
  GpuPlan plan;
  for (std::size_t s = 0; s < schedule.steps.size(); ++s) try {
      plan.steps.push_back(launches.of(schedule.steps[s]));
      for (const Launch& launch : plan.steps.back())
        plan.workspace = std::max(plan.workspace, launch.workspace);
    } catch (const Error& refusal) {
      throw Error(fmt::format("step {} ({})", s, name_of(schedule.steps[s])), refusal.what());
    }
  if (launches.widening().bytes_read > 0) plan.steps.back().push_back(launches.widening());
  plan.activations = plan_memory(schedule, launches.tensor_bytes()).bytes + winner_bytes(schedule);
  for (const int extent : schedule.vectors) plan.vectors += extent * sizeof(float);
  if (element_ != Element::fp32) plan.weights = schedule.parameters * bytes_of(element_);
  plan.weights += launches.kept();
  plan.fusions = fusions(schedule);
  return plan;
}

}  // namespace
}  // namespace ringtrain::compute::cuda

namespace ringtrain::compute {

std::unique_ptr<GpuPlanner> make_gpu_planner(const GpuModel& model, Element element,
                                             bool deterministic) {
  return std::make_unique<cuda::CudnnPlanner>(model, element, deterministic);
}

}  // namespace ringtrain::compute
