#include "ringtrain/compute/gpu_planner.hpp"

#include <fmt/ranges.h>

#include <algorithm>

namespace ringtrain::compute {

namespace {

// What an H100 reaches of NVIDIA's figures for it: 3.35 TB/s, and 989 TFLOP/s in fp16 without
// sparsity. Other cards are taken to reach as much of theirs.
constexpr double reached_bandwidth = 3.0 / 3.35, reached_arithmetic = 798. / 989;

constexpr double mib = 1 << 20, gib = 1 << 30;

// With NVIDIA's figures: GB/s, and TFLOP/s of fp16 tensor cores that sum in fp32, without sparsity.
GpuModel published(GpuModel model, double gigabytes, double teraflops) {
  model.bytes_per_second = gigabytes * 1e9 * reached_bandwidth;
  model.flops_per_second = teraflops * 1e12 * reached_arithmetic;
  return model;
}

GpuModel measured(GpuModel model, double bytes_per_second, double flops_per_second) {
  model.bytes_per_second = bytes_per_second;
  model.flops_per_second = flops_per_second;
  model.measured = true;
  return model;
}

}  // namespace

double GpuModel::flops_per_second_of(Element element) const {
  if (element != Element::fp32) return flops_per_second;
  return flops_per_second / (capability < 80 ? 8 : 2);  // Turing has no tf32
}

bool GpuModel::has(Element element) const { return element != Element::bf16 || capability >= 80; }

// Multiprocessors, clocks, buses and caches: cuDNN's description for the H100 and H200; for others
// NVIDIA's data sheets and architecture white papers (A100 2020, GA102 2020, Turing 2018, Ada 2022,
// Hopper 2022, Blackwell 2024 and RTX Blackwell 2025) and, for the A10G, what
// cudaGetDeviceProperties says on AWS's g5. Memory is what the driver leaves of it, or the data
// sheet's.
const std::vector<GpuModel>& gpu_models() {
  static const std::vector<GpuModel> models{
      measured({"h100", "NVIDIA H100 80GB HBM3", 90, 132, 1980, 2619, 5120, 50 * mib, 85017493504.},
               3.0e12, 798e12),
      measured({"h200", "NVIDIA H200", 90, 132, 1980, 3201, 6144, 60 * mib, 150109880320.}, 4.3e12,
               788e12),
      // H100 PCIe data sheet
      published({"h100pcie", "NVIDIA H100 PCIe", 90, 114, 1755, 1593, 5120, 50 * mib, 80 * gib},
                2000, 756),
      // A100 data sheet
      published({"a100", "NVIDIA A100-SXM4-80GB", 80, 108, 1410, 1593, 5120, 40 * mib, 80 * gib},
                2039, 312),
      published({"a100-40", "NVIDIA A100-SXM4-40GB", 80, 108, 1410, 1215, 5120, 40 * mib, 40 * gib},
                1555, 312),
      // A10G data sheet
      published({"a10g", "NVIDIA A10G", 86, 80, 1710, 6251, 384, 6 * mib, 22 * gib}, 600, 70),
      // L4 and L40S data sheets
      published({"l4", "NVIDIA L4", 89, 58, 2040, 6251, 192, 48 * mib, 22 * gib}, 300, 121),
      published({"l40s", "NVIDIA L40S", 89, 142, 2520, 9001, 384, 96 * mib, 44 * gib}, 864, 362),
      // GeForce cards: the white papers' appendix, fp16 tensor with fp32 accumulate
      published({"rtx3090", "NVIDIA GeForce RTX 3090", 86, 82, 1695, 9751, 384, 6 * mib, 24 * gib},
                936, 71),
      published(
          {"rtx4090", "NVIDIA GeForce RTX 4090", 89, 128, 2520, 10501, 384, 72 * mib, 24 * gib},
          1008, 165),
      published(
          {"rtx5090", "NVIDIA GeForce RTX 5090", 120, 170, 2407, 14001, 512, 96 * mib, 32 * gib},
          1792, 210),
      // T4 data sheet
      published({"t4", "Tesla T4", 75, 40, 1590, 5001, 256, 4 * mib, 15 * gib}, 320, 65),
      // HGX B200 data sheet
      published({"b200", "NVIDIA B200", 100, 148, 1965, 3996, 8192, 126 * mib, 178 * gib}, 8000,
                2250)};
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

}  // namespace ringtrain::compute
