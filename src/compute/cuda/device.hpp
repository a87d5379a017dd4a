#pragma once
#include <string_view>

#include "compute/cuda/cudnn.hpp"

namespace ringtrain::cuda {

/// A GPU as cuDNN's heuristics and plans need to know it, from cuDNN's own JSON.
Descriptor describe_device(std::string_view json);

/// The built-in description of a GpuModel.
std::string_view device_json(std::string_view model);

}  // namespace ringtrain::cuda
