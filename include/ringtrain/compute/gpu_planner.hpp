#pragma once
#include <memory>
#include <string>
#include <vector>

#include "ringtrain/base/memory/view.hpp"
#include "ringtrain/compute/step.hpp"

namespace ringtrain::compute {

/// A GPU that is known without being here.
struct GpuModel {
  std::string name;  ///< "h100"
  std::string title;
  int capability = 0;  ///< 90 is 9.0
  int multiprocessors = 0;
  int sm_mhz = 0, memory_mhz = 0;
  int bus_bits = 0;  ///< of its memory
  double l2_bytes = 0, memory_bytes = 0;
  double bytes_per_second = 0;  ///< of a large copy, bytes read and bytes written together
  double flops_per_second = 0;  ///< of a large 16-bit matrix product, summed in fp32
  bool measured = false;  ///< these two; else they are NVIDIA's figures times what an H100 reaches
  /// Of a matrix product of such elements; fp32 is tf32, where there is that.
  double flops_per_second_of(Element element) const;
  bool has(Element element) const;
};

/// The GPUs with a built-in description.
const std::vector<GpuModel>& gpu_models();
/// Throws Error (usage) with the names that there are.
const GpuModel& gpu_model(const std::string& name);

/// One kernel on a GPU.
struct Launch {
  std::string engine;  ///< "cudnn engine 62", or one of our kernels: "kernel add"
  std::size_t bytes_read = 0, bytes_written = 0;  ///< each tensor once
  std::size_t workspace = 0;                      ///< bytes
  double flops = 0;
  std::size_t bytes() const { return bytes_read + bytes_written; }
};

/// A kind of fused step.
struct Fusion {
  std::string what;  ///< "relu(bn(x)) -> convolution -> statistics"
  int made = 0;      ///< steps of the schedule
  int refused = 0;   ///< shapes that were asked for and have no engine
  std::string why;   ///< of a refusal, in cuDNN's words
};

/// What a schedule becomes on a GPU. Sizes are bytes of its memory.
struct GpuPlan {
  std::vector<std::vector<Launch>> steps;  ///< as Schedule::steps
  std::size_t activations = 0;             ///< the arena of all tensors
  std::size_t vectors = 0;                 ///< of Schedule::vectors
  std::size_t weights = 0;                 ///< and their gradients, as the kernels want them
  std::size_t workspace = 0;               ///< of all launches, which share it
  std::vector<Fusion> fusions;             ///< those made, and those supports() refused before
  std::size_t bytes_moved() const;
};

/// Plans schedules for one GPU, which need not be here: cuDNN plans from a description. Equal
/// questions to cuDNN are asked once. One thread at a time.
class GpuPlanner {
 public:
  virtual ~GpuPlanner() = default;
  /// Backend::supports of the CUDA backend.
  virtual bool supports(const Schedule& schedule, const Step& step) = 0;
  /// Throws Error naming the first step without an engine.
  virtual GpuPlan plan(const Schedule& schedule) = 0;
};

/// `deterministic`: as GpuSettings has it. Throws Error (usage) in a build without CUDA.
std::unique_ptr<GpuPlanner> make_gpu_planner(const GpuModel& model, Element element,
                                             bool deterministic = false);

}  // namespace ringtrain::compute
