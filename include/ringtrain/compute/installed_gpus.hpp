#pragma once
#include <string>
#include <vector>

namespace ringtrain::compute {

/// The NVIDIA GPUs of this machine as its kernel lists them. Neither CUDA nor a driver is needed.
struct InstalledGpus {
  std::vector<std::string> names = {};  ///< by the driver; without it, by the PCI bus
  std::string driver = {};        ///< the version of NVIDIA's driver; empty where none is loaded
  std::string other_driver = {};  ///< the module that holds the first GPU instead: "nouveau"
  std::string hidden = {};  ///< the variable that hides all GPUs from this process, and its value
};

/// Reads /proc/driver/nvidia, else /sys/bus/pci/devices. A GPU that is handed to a virtual machine
/// (vfio-pci) is not counted. RINGTRAIN_SYSTEM_ROOT names a folder to read instead of /, for tests.
InstalledGpus find_installed_gpus();

}  // namespace ringtrain::compute
