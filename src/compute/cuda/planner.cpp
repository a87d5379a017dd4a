#include <fmt/core.h>

#include <algorithm>

#include "compute/cuda/device.hpp"
#include "compute/cuda/launches.hpp"
#include "ringtrain/compute/memory_plan.hpp"

namespace ringtrain::cuda {
namespace {

// Whether a step that is not cuDNN's is a kernel of ours: a max pool's epilogue makes no mask from
// a residual.
bool has_kernel(const Step& step) {
  const auto* pool = std::get_if<MaxPoolBackward>(&step);
  return !pool || !pool->epilogue || pool->epilogue->residual == no_tensor;
}

class CudnnPlanner final : public GpuPlanner {
 public:
  CudnnPlanner(const GpuModel& model, Element element)
      : element_(element), engines_(describe_device(device_json(model.name))) {}

  bool supports(const Schedule& schedule, const Step& step) override {
    const std::optional<Request> fused = fused_request(schedule, step);
    return fused ? engines_.ask(*fused).engine.has_value() : has_kernel(step);
  }
  GpuPlan plan(const Schedule& schedule) override;

 private:
  std::optional<Request> fused_request(const Schedule& schedule, const Step& step) const;
  std::vector<Fusion> fusions(const Schedule& schedule) const;

  const Element element_;
  Engines engines_;
};

// What cuDNN must be asked about `step`, because nothing else could do it. A convolution's own bias
// and ReLU are no such thing: a kernel of ours adds them where cuDNN does not.
std::optional<Request> CudnnPlanner::fused_request(const Schedule& schedule,
                                                   const Step& step) const {
  if (const auto* s = std::get_if<ConvolutionForward>(&step))
    if (s->prologue || s->sums != no_vector) return request(schedule, *s, element_, true);
  if (const auto* s = std::get_if<ConvolutionInputGradient>(&step))
    if (s->epilogue) return request(schedule, *s, element_);
  if (const auto* s = std::get_if<ConvolutionWeightGradient>(&step))
    if (s->prologue) return request(schedule, *s, element_);
  return std::nullopt;
}

std::vector<Fusion> CudnnPlanner::fusions(const Schedule& schedule) const {
  std::map<std::string, Fusion> found;
  for (const Step& step : schedule.steps)
    if (const auto fused = fused_request(schedule, step)) ++found[fused->pattern].made;
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
  plan.activations = plan_memory(schedule, launches.tensor_bytes()).bytes;
  for (const int extent : schedule.vectors) plan.vectors += extent * sizeof(float);
  if (element_ != Element::fp32) plan.weights = schedule.parameters * bytes_of(element_);
  plan.fusions = fusions(schedule);
  return plan;
}

}  // namespace
}  // namespace ringtrain::cuda

namespace ringtrain {

std::unique_ptr<GpuPlanner> make_gpu_planner(const GpuModel& model, Element element) {
  return std::make_unique<cuda::CudnnPlanner>(model, element);
}

}  // namespace ringtrain
