#pragma once
#include <optional>
#include <string>

#include "compute/cuda/cudnn.hpp"

namespace ringtrain::cuda {

/// The kernel that cuDNN's heuristics chose for a graph.
struct Engine {
  std::string name;           ///< such as "cudnn engine 15"
  std::size_t workspace = 0;  ///< bytes
  Descriptor plan;            ///< for cudnnBackendExecute
};

/// The first choice of the heuristics of which a plan can be made for `device`; nullopt when cuDNN
/// has no engine for `graph`. Engines that are compiled at run time need the driver's library and
/// are passed over where that is missing.
std::optional<Engine> choose_engine(const Descriptor& graph, const Descriptor& device);

}  // namespace ringtrain::cuda
