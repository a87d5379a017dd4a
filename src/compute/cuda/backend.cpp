#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <memory>

#include "compute/cuda/bind/launches.hpp"
#include "compute/cuda/engines/autotuner.hpp"
#include "compute/cuda/engines/fusion_check.hpp"
#include "compute/cuda/kernels/architectures.hpp"
#include "compute/cuda/kernels/arguments/elementwise.hpp"
#include "compute/cuda/runtime/cudnn.hpp"
#include "compute/cuda/runtime/device.hpp"
#include "compute/cuda/runtime/runtime.hpp"
#include "compute/cuda/training.hpp"
#include "ringtrain/base/error.hpp"
#include "ringtrain/base/hash.hpp"
#include "ringtrain/compute/gpu.hpp"

namespace ringtrain::compute::cuda {
namespace {

int this_device() {
  int device = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  return device;
}

/// First a copy within the GPU, which costs the compute stream microseconds; from there to the host
/// on a stream of its own, while training changes the original.
class CudaSnapshot final : public GpuSnapshot {
 public:
  CudaSnapshot(const std::vector<View>& state, cudaStream_t compute);
  ~CudaSnapshot() override;

  void pin(std::span<const std::span<float>> targets) override;
  void start(std::span<const std::span<float>> targets) override;
  bool done() override;
  void release() override;

 private:
  void pin_one(std::span<float> target);
  bool is_pinned(std::span<float> target) const;

  const int device_ = this_device();
  const std::vector<View> state_;
  const cudaStream_t compute_;
  const Stream copies_;
  const Event taken_, copied_;
  const DeviceBytes copy_;
  std::map<float*, std::size_t> pinned_;  // bytes
};

std::size_t total(const std::vector<View>& state) {
  std::size_t floats = 0;
  for (const View& view : state) floats += view.size();
  return floats;
}

CudaSnapshot::CudaSnapshot(const std::vector<View>& state, cudaStream_t compute)
    : state_(state),
      compute_(compute),
      copies_(make_stream()),
      taken_(make_event()),
      copied_(make_event()),
      copy_(total(state) * sizeof(float)) {}

CudaSnapshot::~CudaSnapshot() {
  static_cast<void>(cudaStreamSynchronize(copies_.get()));
  for (const auto& [data, bytes] : pinned_) static_cast<void>(cudaHostUnregister(data));
}

void CudaSnapshot::release() {
  check(cudaStreamSynchronize(copies_.get()), "cudaStreamSynchronize");
  for (const auto& [data, bytes] : pinned_) check(cudaHostUnregister(data), "cudaHostUnregister");
  pinned_.clear();
}

void CudaSnapshot::pin(std::span<const std::span<float>> targets) {
  for (const std::span<float>& target : targets) pin_one(target);
}

bool CudaSnapshot::is_pinned(std::span<float> target) const {
  const auto behind = pinned_.upper_bound(target.data());
  if (behind == pinned_.begin()) return false;
  const auto& [data, bytes] = *std::prev(behind);
  return target.data() + target.size() <= data + bytes / sizeof(float);
}

// Memory that cannot be registered is copied to all the same, only slower.
void CudaSnapshot::pin_one(std::span<float> target) {
  if (target.empty() || is_pinned(target)) return;
  if (cudaHostRegister(target.data(), target.size_bytes(), cudaHostRegisterDefault) == cudaSuccess)
    pinned_.emplace(target.data(), target.size_bytes());
  else
    static_cast<void>(cudaGetLastError());
}

void CudaSnapshot::start(std::span<const std::span<float>> targets) {
  expects(targets.size() == state_.size(), "GpuSnapshot::start: one target a buffer");
  pin(targets);
  // One before it may have to leave copy_ still.
  check(cudaStreamWaitEvent(compute_, copied_.get()), "cudaStreamWaitEvent");
  auto* to = reinterpret_cast<float*>(copy_.data());
  for (const View& view : state_) {
    if (view.size() == 0) continue;
    check(cudaMemcpyAsync(to, view.data(), view.size() * sizeof(float), cudaMemcpyDeviceToDevice,
                          compute_),
          "cudaMemcpyAsync");
    to += view.size();
  }
  follow(copies_.get(), taken_, compute_);
  const auto* from = reinterpret_cast<const float*>(copy_.data());
  for (const std::span<float>& target : targets) {
    if (target.empty()) continue;
    check(cudaMemcpyAsync(target.data(), from, target.size_bytes(), cudaMemcpyDeviceToHost,
                          copies_.get()),
          "cudaMemcpyAsync");
    from += target.size();
  }
  check(cudaEventRecord(copied_.get(), copies_.get()), "cudaEventRecord");
}

// A thread that has chosen no GPU would make a context on the first one.
bool CudaSnapshot::done() {
  check(cudaSetDevice(device_), "cudaSetDevice");
  return is_done(copied_);
}

cudaDeviceProp properties_of(int device) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  return properties;
}

EngineScope scope_of(const GpuSettings& settings) {
  const cudaDeviceProp gpu = properties_of(settings.device);
  return {cudnnGetVersion(), gpu.name, 10 * gpu.major + gpu.minor, settings.deterministic};
}

std::string fingerprint(const Engines& engines) {
  std::string all;
  for (const auto& [request, answer] : engines.answers())
    if (answer.engine)
      all += fmt::format("{}\n{}\n{}\n{}\n", request.first, request.second, answer.engine->place,
                         answer.engine->name);
  return hex(hash_text(all));
}

class CudaBackend final : public GpuBackend {
 public:
  explicit CudaBackend(const GpuSettings& settings)
      : settings_(settings),
        stream_(make_stream()),
        runner_(make_cudnn_runner(stream_.get())),
        cache_(settings.cache_folder, scope_of(settings)),
        engines_(runner_->target(), {settings.deterministic, runner_->compiles()}, &cache_),
        fusions_(settings.element, engines_, *runner_, stream_.get()),
        tuner_(engines_, *runner_, cache_, stream_.get(), fusions_,
               {.progress = settings.progress}) {}

  std::string name() const override { return "cuda"; }
  bool supports(const Schedule& schedule, const Step& step) const override {
    return cuda::supports(schedule, step, element(), engines_);
  }
  std::unique_ptr<Program> compile(const Schedule& schedule, const Buffers& buffers,
                                   std::uint64_t seed) override {
    return std::make_unique<CudaProgram>(schedule, buffers, seed, parts());
  }
  Memory& memory() override { return memory_; }

  void* stream() const override { return stream_.get(); }
  Element element() const override { return settings_.element; }
  std::string title() const override;
  int capability() const override;
  std::string bus_id() const override;
  GpuEngines engines() const override;
  std::string engine_scope() const override { return cache_.name(); }
  std::string engine_choices() const override { return cache_.text(); }
  void follow(const std::string& choices) override {
    cache_.follow(choices);
    tuner_.follow();
  }
  std::vector<GpuRefusal> check_fusions(const Schedule& schedule) override {
    return fusions_.check(schedule);
  }
  void refuse(const std::vector<GpuRefusal>& refusals) override {
    for (const GpuRefusal& r : refusals) engines_.refuse({r.pattern, r.shape}, r.why);
  }
  std::unique_ptr<GpuTraining> make_training(const Schedule& schedule, const Buffers& buffers,
                                             std::uint64_t seed, const GpuStepSums& sums,
                                             const GpuTrainingSettings& settings) override {
    return std::make_unique<CudaTraining>(schedule, buffers, seed, parts(), sums, settings);
  }
  std::unique_ptr<GpuSnapshot> make_snapshot(const std::vector<View>& state) override {
    return std::make_unique<CudaSnapshot>(state, stream_.get());
  }
  void round(float factor, View values, NarrowView rounded) override {
    kernels::scale(Element::fp32, rounded.element(), factor, values.size(), values.data(),
                   rounded.data(), stream_.get());
  }
  void widen(NarrowView rounded, View values) override {
    kernels::convert(rounded.element(), Element::fp32, values.size(), rounded.data(), values.data(),
                     stream_.get());
  }

 private:
  CudaProgram::Parts parts() {
    return {element(),     engines_,     *runner_,
            stream_.get(), activations_, settings_.autotune ? &tuner_ : nullptr};
  }

  const GpuSettings settings_;
  DeviceMemory memory_;
  const Stream stream_;
  const std::unique_ptr<CudnnRunner> runner_;
  EngineCache cache_;
  mutable Engines engines_;  // remembers cuDNN's answers
  FusionCheck fusions_;
  Autotuner tuner_;
  SharedBytes activations_;
};

std::string CudaBackend::bus_id() const {
  std::array<char, 32> id{};
  check(cudaDeviceGetPCIBusId(id.data(), id.size(), settings_.device), "cudaDeviceGetPCIBusId");
  return id.data();
}

std::string CudaBackend::title() const {
  const cudaDeviceProp properties = properties_of(settings_.device);
  return fmt::format("{}, {} GiB", properties.name, properties.totalGlobalMem >> 30);
}

GpuEngines CudaBackend::engines() const {
  const Autotuner::Report& report = tuner_.report();
  const auto known = std::ranges::count(engines_.answers(), Answer::Source::cache,
                                        [](const auto& entry) { return entry.second.source; });
  return {.timed = report.requests,
          .known = static_cast<std::size_t>(known),
          .plans = report.plans,
          .left = report.left,
          .seconds = report.seconds,
          .dropped = report.dropped,
          .checked = fusions_.checked(),
          .check_seconds = fusions_.seconds(),
          .notes = cache_.notes(),
          .fingerprint = fingerprint(engines_)};
}

// 90 is 9.0.
int capability_of(int device) {
  int major = 0, minor = 0;
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
        "cudaDeviceGetAttribute");
  check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device),
        "cudaDeviceGetAttribute");
  return 10 * major + minor;
}

int CudaBackend::capability() const { return capability_of(settings_.device); }

// Of the one that this rank was given: others here may be of other kinds.
void expect_usable(int device, const GpusHere& here) {
  const int capability = capability_of(device);
  if (capability >= oldest_gpu_capability && !has_kernels_for(capability, here))
    throw Error(Exit::usage, fmt::format("GPU {}", device),
                fmt::format("this build has no kernels for its compute capability {} (it has: {}); "
                            "hide that GPU by CUDA_VISIBLE_DEVICES, or build again on this machine",
                            capability_text(capability), here.kernels));
  if (capability < oldest_gpu_capability)
    throw Error(Exit::usage, fmt::format("GPU {}", device),
                fmt::format("its compute capability {} is too old: {} or newer is needed; --device "
                            "cpu trains without it",
                            capability_text(capability), capability_text(oldest_gpu_capability)));
}

}  // namespace
}  // namespace ringtrain::compute::cuda

namespace ringtrain::compute {

std::unique_ptr<GpuBackend> make_gpu_backend(const GpuSettings& settings) {
  const GpusHere here = gpus_here();
  if (settings.device >= here.count)
    throw Error(Exit::usage, fmt::format("GPU {}", settings.device),
                here.count == 0 ? here.why : fmt::format("this process sees {}", here.count));
  cuda::expect_usable(settings.device, here);
  cuda::check(cudaSetDevice(settings.device), "cudaSetDevice");
  return std::make_unique<cuda::CudaBackend>(settings);
}

GpusHere gpus_here() {
  GpusHere here{.kernels = cuda::kernels::kernel_architectures()};
  // These two need no driver; without one, the second leaves 0.
  cuda::check(cudaRuntimeGetVersion(&here.cuda), "cudaRuntimeGetVersion");
  cuda::check(cudaDriverGetVersion(&here.driver_cuda), "cudaDriverGetVersion");
  const cudaError_t code = cudaGetDeviceCount(&here.count);
  if (code == cudaSuccess && here.count > 0) {
    here.missing = cuda::why_cudnn_is_missing();  // looks for it, so only where there is a use
    for (int device = 0; device < here.count; ++device)
      here.capabilities.push_back(cuda::capability_of(device));
    return here;
  }
  static_cast<void>(cudaGetLastError());
  here.count = 0;
  here.why = code == cudaSuccess ? "this process sees no GPU" : cudaGetErrorString(code);
  if (code == cudaErrorInsufficientDriver)
    here.why = "no NVIDIA driver, or one older than this build's CUDA";
  return here;
}

}  // namespace ringtrain::compute
