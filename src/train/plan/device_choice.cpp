#include "train/plan/device_choice.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "ringtrain/allreduce/mpi/agreement.hpp"
#include "ringtrain/allreduce/nccl/gpu_assignment.hpp"

namespace ringtrain::train {
namespace {

using Answer = GpuJudgement::Answer;

constexpr const char* build_again =
    "cmake --preset release --fresh && cmake --build --preset release --target train";

std::string cuda_version(int number) {
  return fmt::format("{}.{}", number / 1000, number % 1000 / 10);
}

// The command of the Python package names itself here (python/ringtrain/program.py).
bool from_python_package() { return std::getenv("RINGTRAIN_ENTRY") != nullptr; }

// The first driver of each CUDA; drivers run later minor versions, too.
std::string driver_for(int cuda) {
  if (cuda >= 14000) return fmt::format("one for CUDA {}", cuda_version(cuda));
  return cuda >= 13000 ? "580 or newer" : "525 or newer";
}

std::string what_is_there(const compute::InstalledGpus& installed, const compute::GpusHere& here) {
  if (installed.names.empty()) return fmt::format("this process sees {} GPU(s)", here.count);
  const std::size_t count = installed.names.size();
  std::string driver = ", driver " + installed.driver;
  if (installed.driver.empty()) {
    driver = ", no NVIDIA driver loaded";
    if (!installed.other_driver.empty()) driver += ", held by " + installed.other_driver;
  }
  return fmt::format("this machine has {} ({}{})",
                     count == 1 ? "a GPU" : fmt::format("{} GPUs", count), installed.names.front(),
                     driver);
}

struct Trouble {
  std::string why, mend;
};

Trouble why_no_device(const compute::InstalledGpus& installed, const compute::GpusHere& here) {
  if (!here.in_build)
    return {
        "this build is for CPUs only",
        from_python_package()
            ? "Install a package that scripts/wheel.sh made with CUDA"
            : fmt::format("In a checkout of ringtrain run: scripts/setup.sh && {}", build_again)};
  const std::string wanted = driver_for(here.cuda);
  const std::string built = "CUDA " + cuda_version(here.cuda);
  if (installed.driver.empty())
    return {"no NVIDIA driver is loaded",
            fmt::format("Install NVIDIA's driver, {} (on Ubuntu: sudo ubuntu-drivers install; "
                        "elsewhere: https://www.nvidia.com/drivers), and restart the machine",
                        wanted)};
  if (here.driver_cuda == 0)
    return {
        "the driver's library libcuda.so.1 is not found",
        "In a container, start that with its GPUs (docker run --gpus all, apptainer exec --nv); "
        "else reinstall the driver, or name the library's folder in LD_LIBRARY_PATH"};
  if (here.driver_cuda / 1000 < here.cuda / 1000)
    return {fmt::format("its driver is for CUDA {}, this build's {} wants driver {}",
                        cuda_version(here.driver_cuda), built, wanted),
            fmt::format("Install driver {} (on Ubuntu: sudo ubuntu-drivers install; elsewhere: "
                        "https://www.nvidia.com/drivers), or build with CUDA {}",
                        wanted, here.driver_cuda / 1000)};
  const char* chosen = std::getenv("CUDA_VISIBLE_DEVICES");
  return {
      fmt::format("CUDA says: {}{}", here.why,
                  chosen ? fmt::format(" (CUDA_VISIBLE_DEVICES is '{}')", chosen) : ""),
      "Ask the scheduler or container for the GPU (srun --gpus 1, docker run --gpus all), and see "
      "whether nvidia-smi lists it"};
}

// A rank may get any of the GPUs that it sees, so the oldest decides about the precision.
std::optional<Trouble> trouble_of_devices(const compute::GpusHere& here,
                                          config::Precision precision) {
  if (here.capabilities.empty()) return std::nullopt;
  const int newest = std::ranges::max(here.capabilities);
  const int oldest = std::ranges::min(here.capabilities);
  if (newest < compute::oldest_gpu_capability)
    return Trouble{fmt::format("its compute capability {} is too old: cuDNN 9.11 and CUDA 13 want "
                               "{} (Turing) or newer",
                               compute::capability_text(newest),
                               compute::capability_text(compute::oldest_gpu_capability)),
                   "No driver or build mends that"};
  if (precision == config::Precision::bf16 && oldest < compute::oldest_bf16_capability)
    return Trouble{fmt::format("compute capability {} has no bf16, {} (Ampere) or newer has",
                               compute::capability_text(oldest),
                               compute::capability_text(compute::oldest_bf16_capability)),
                   "Say --precision fp16, or fp32"};
  if (!std::ranges::any_of(here.capabilities, [&](int capability) {
        return compute::has_kernels_for(capability, here);
      }))
    return Trouble{fmt::format("this build has no kernels for its compute capability {} (it has: "
                               "{})",
                               compute::capability_text(newest), here.kernels),
                   fmt::format("In a checkout on this machine run: {}", build_again)};
  return std::nullopt;
}

GpuJudgement unusable(const compute::InstalledGpus& installed, const compute::GpusHere& here,
                      const Trouble& trouble) {
  return {Answer::unusable,
          fmt::format("{}, but cannot train on it: {}. {}. Or train on CPUs: --device cpu",
                      what_is_there(installed, here), trouble.why, trouble.mend)};
}

const char* name_of(config::Device device) {
  return device == config::Device::cuda ? "--device cuda" : "--device auto";
}

}  // namespace

GpuJudgement judge_gpus(const compute::InstalledGpus& installed, const compute::GpusHere& here,
                        config::Precision precision) {
  if (here.count == 0) {
    if (installed.names.empty()) return {Answer::none, "no NVIDIA GPU in this machine"};
    if (!installed.hidden.empty())
      return {Answer::none, installed.hidden + ", which hides this machine's GPUs"};
    return unusable(installed, here, why_no_device(installed, here));
  }
  if (!here.missing.empty())
    return unusable(
        installed, here,
        {here.missing, fmt::format("{}, or name the library's folder in LD_LIBRARY_PATH",
                                   from_python_package() ? "Run: pip install 'ringtrain[cuda13]'"
                                                         : "In a checkout run: scripts/setup.sh")});
  if (const auto trouble = trouble_of_devices(here, precision))
    return unusable(installed, here, *trouble);
  return {Answer::usable, ""};
}

std::string idle_gpus_note(int gpus, int ranks) {
  if (ranks > 1 || gpus < 2) return "";
  return fmt::format(
      "training on one of the {0} GPUs here, as a rank has one: mpirun -np {0} train ... has all",
      gpus);
}

DeviceChoice choose_device(config::Device device, config::Precision precision,
                           const allreduce::MpiSession& session) {
  if (device == config::Device::cpu) return {};
  compute::GpusHere here = compute::gpus_here();
  if (here.count > 0 && here.missing.empty()) here.missing = allreduce::why_nccl_is_missing();
  const GpuJudgement mine = judge_gpus(compute::find_installed_gpus(), here, precision);
  const bool usable = mine.answer == Answer::usable;
  const bool refused =
      mine.answer == Answer::unusable || (device == config::Device::cuda && !usable);
  std::optional<Error> failure;
  if (refused) failure.emplace(Exit::usage, name_of(device), mine.text);
  allreduce::require_success(failure, session);
  std::array<double, 1> with_gpu{usable ? 1. : 0.};
  session.sum(with_gpu);
  const bool any = with_gpu[0] > 0;
  if (any && !usable)
    failure.emplace(Exit::usage, name_of(device),
                    mine.text +
                        ", while other ranks have a GPU; start all ranks on machines with "
                        "GPUs, or train on CPUs: --device cpu");
  allreduce::require_success(failure, session);
  return {any, any ? idle_gpus_note(here.count, session.size()) : "training on CPUs: " + mine.text};
}

}  // namespace ringtrain::train
