#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>
#include <system_error>

#include "ringtrain/compute/gpu.hpp"

namespace ringtrain::compute {
namespace {

namespace fs = std::filesystem;

std::string variable(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : value;
}

std::string first_word_of(const fs::path& file) {
  std::string word;
  std::ifstream(file) >> word;
  return word;
}

std::vector<fs::path> entries_of(const fs::path& folder) {
  std::error_code absent;
  std::vector<fs::path> entries;
  for (const auto& entry : fs::directory_iterator(folder, absent)) entries.push_back(entry.path());
  std::ranges::sort(entries);
  return entries;
}

// "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 ..."
std::string version_in(const fs::path& file) {
  std::string line;
  std::ifstream stream(file);
  std::getline(stream, line);
  std::istringstream words(line);
  for (std::string word; words >> word;)
    if (word.size() > 3 && word.find('.') != std::string::npos &&
        word.find_first_not_of("0123456789.") == std::string::npos)
      return word;
  return "";
}

// "Model: 		 NVIDIA H100 80GB HBM3"
std::string model_in(const fs::path& file) {
  std::ifstream stream(file);
  for (std::string line; std::getline(stream, line);) {
    if (!line.starts_with("Model:")) continue;
    const std::size_t from = line.find_first_not_of(" \t", 6);
    if (from != std::string::npos) return line.substr(from);
  }
  return "NVIDIA GPU";
}

struct PciGpu {
  std::string name, driver;
};

std::vector<PciGpu> gpus_on_the_bus(const fs::path& root) {
  std::vector<PciGpu> gpus;
  for (const fs::path& device : entries_of(root / "sys/bus/pci/devices")) {
    const bool display = first_word_of(device / "class").starts_with("0x03");
    if (!display || first_word_of(device / "vendor") != "0x10de") continue;
    std::error_code unbound;
    const std::string driver = fs::read_symlink(device / "driver", unbound).filename().string();
    if (driver == "vfio-pci") continue;
    gpus.push_back({fmt::format("NVIDIA GPU at PCI {}", device.filename().string()), driver});
  }
  return gpus;
}

// As CUDA reads its variable: devices behind the first one that is none do not count.
std::string hiding_variable() {
  const char* named = std::getenv("CUDA_VISIBLE_DEVICES");
  if (named != nullptr) {
    const std::string_view value = named;
    if (value.empty() || value.starts_with('-') || value == "NoDevFiles" || value == "none")
      return fmt::format("CUDA_VISIBLE_DEVICES is '{}'", value);
  }
  const std::string given = variable("NVIDIA_VISIBLE_DEVICES", "all");
  if (given.empty() || given == "void" || given == "none")
    return fmt::format("NVIDIA_VISIBLE_DEVICES is '{}'", given);
  return "";
}

// One entry of CMAKE_CUDA_ARCHITECTURES: "80" is machine code and PTX, "80-real" and "80-virtual"
// one of them. Machine code runs on later GPUs of its generation, PTX on all later ones.
bool serves(std::string_view kernel, int capability, bool can_compile) {
  int made_for = 0;
  const auto [end, failed] =
      std::from_chars(kernel.data(), kernel.data() + kernel.size(), made_for);
  if (failed != std::errc()) return true;  // "native", "all": not known here
  const std::string_view kind(end, static_cast<std::size_t>(kernel.data() + kernel.size() - end));
  if (kind.starts_with('a')) return made_for == capability;
  const bool same_generation = made_for / 10 == capability / 10;
  return made_for <= capability &&
         ((kind != "-virtual" && same_generation) || (kind != "-real" && can_compile));
}

}  // namespace

bool has_kernels_for(int capability, const GpusHere& here) {
  std::string_view left = here.kernels;
  bool served = left.empty();
  while (!left.empty() && !served) {
    const std::size_t end = std::min(left.find(','), left.size());
    served = serves(left.substr(0, end), capability, here.driver_cuda >= here.cuda);
    left.remove_prefix(std::min(end + 1, left.size()));
  }
  return served;
}

InstalledGpus find_installed_gpus() {
  const fs::path root = variable("RINGTRAIN_SYSTEM_ROOT", "/");
  const fs::path driver = root / "proc/driver/nvidia";
  InstalledGpus found;
  found.hidden = hiding_variable();
  found.driver = version_in(driver / "version");
  for (const fs::path& gpu : entries_of(driver / "gpus"))
    found.names.push_back(model_in(gpu / "information"));
  if (!found.names.empty()) return found;
  for (const PciGpu& gpu : gpus_on_the_bus(root)) {
    if (found.names.empty() && gpu.driver != "nvidia") found.other_driver = gpu.driver;
    found.names.push_back(gpu.name);
  }
  return found;
}

}  // namespace ringtrain::compute
