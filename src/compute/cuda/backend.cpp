#include <fmt/core.h>

#include "compute/cuda/device.hpp"
#include "compute/cuda/launches.hpp"
#include "compute/cuda/snapshot.hpp"
#include "compute/cuda/training.hpp"
#include "ringtrain/base/error.hpp"

namespace ringtrain::cuda {
namespace {

constexpr int oldest_gpu = 75;  // compute capability

cudaDeviceProp properties_of(int device) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  return properties;
}

class CudaBackend final : public GpuBackend {
 public:
  explicit CudaBackend(const GpuSettings& settings)
      : settings_(settings),
        stream_(make_stream()),
        runner_(make_cudnn_runner(stream_.get())),
        engines_(runner_->device(), {settings.deterministic, runner_->compiles()}) {}

  std::string name() const override { return "cuda"; }
  bool supports(const Schedule& schedule, const Step& step) const override {
    return cuda::supports(schedule, step, element(), engines_);
  }
  std::unique_ptr<Program> compile(const Schedule& schedule, const Buffers& buffers,
                                   std::uint64_t seed) override {
    return std::make_unique<CudaProgram>(schedule, buffers, seed, site());
  }
  Memory& memory() override { return memory_; }

  void* stream() const override { return stream_.get(); }
  Element element() const override { return settings_.element; }
  std::string title() const override;
  std::unique_ptr<GpuTraining> make_training(const Schedule& schedule, const Buffers& buffers,
                                             std::uint64_t seed, const GpuStepSums& sums,
                                             const GpuTrainingSettings& settings) override {
    return std::make_unique<CudaTraining>(schedule, buffers, seed, site(), sums, settings);
  }
  std::unique_ptr<GpuSnapshot> make_snapshot(const std::vector<View>& state) override {
    return std::make_unique<CudaSnapshot>(state, stream_.get());
  }

 private:
  CudaProgram::Site site() { return {element(), engines_, *runner_, stream_.get()}; }

  const GpuSettings settings_;
  DeviceMemory memory_;
  const Stream stream_;
  const std::unique_ptr<CudnnRunner> runner_;
  mutable Engines engines_;  // remembers cuDNN's answers
};

std::string CudaBackend::title() const {
  const cudaDeviceProp properties = properties_of(settings_.device);
  return fmt::format("{}, {} GiB", properties.name, properties.totalGlobalMem >> 30);
}

void expect_usable(int device) {
  int major = 0, minor = 0;
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
        "cudaDeviceGetAttribute");
  check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device),
        "cudaDeviceGetAttribute");
  if (10 * major + minor < oldest_gpu)
    throw Error(Exit::usage, fmt::format("GPU {}", device),
                fmt::format("its compute capability {}.{} is too old: 7.5 (Turing) or newer is "
                            "needed; --device cpu trains without it",
                            major, minor));
}

}  // namespace
}  // namespace ringtrain::cuda

namespace ringtrain {

std::unique_ptr<GpuBackend> make_gpu_backend(const GpuSettings& settings) {
  const GpusHere here = gpus_here();
  if (settings.device >= here.count)
    throw Error(Exit::usage, fmt::format("GPU {}", settings.device),
                here.count == 0 ? here.why : fmt::format("this process sees {}", here.count));
  cuda::expect_usable(settings.device);
  cuda::check(cudaSetDevice(settings.device), "cudaSetDevice");
  return std::make_unique<cuda::CudaBackend>(settings);
}

GpusHere gpus_here() {
  int count = 0;
  const cudaError_t code = cudaGetDeviceCount(&count);
  if (code == cudaSuccess && count > 0) return {count, ""};
  static_cast<void>(cudaGetLastError());
  if (code == cudaErrorInsufficientDriver)
    return {0, "no NVIDIA driver, or one older than this build's CUDA"};
  return {0, code == cudaSuccess ? "this process sees no GPU" : cudaGetErrorString(code)};
}

}  // namespace ringtrain
