#include "ringtrain/compute/gpu_planner.hpp"

#include <fmt/ranges.h>

#include <algorithm>

namespace ringtrain {

double GpuModel::flops_per_second_of(Element element) const {
  return element == Element::fp32 ? flops_per_second / 2 : flops_per_second;
}

const std::vector<GpuModel>& gpu_models() {
  static const std::vector<GpuModel> models{
      {"h100", "NVIDIA H100 80GB HBM3", 85029158912., 3.0e12, 798e12},
      {"h200", "NVIDIA H200", 150754820096., 4.3e12, 788e12}};
  return models;
}

const GpuModel& gpu_model(const std::string& name) {
  const auto found = std::ranges::find(gpu_models(), name, &GpuModel::name);
  if (found != gpu_models().end()) return *found;
  std::vector<std::string> names;
  for (const GpuModel& model : gpu_models()) names.push_back(model.name);
  throw Error(
      Exit::usage, "GPU " + name,
      fmt::format("no description of it is built in; there are {}", fmt::join(names, ", ")));
}

std::size_t GpuPlan::bytes_moved() const {
  std::size_t bytes = 0;
  for (const auto& launches : steps)
    for (const Launch& launch : launches) bytes += launch.bytes();
  return bytes;
}

}  // namespace ringtrain
