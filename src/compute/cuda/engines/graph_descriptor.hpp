#pragma once
#include "compute/cuda/engines/operation_graph.hpp"
#include "compute/cuda/runtime/cudnn.hpp"

namespace ringtrain::cuda {

/// cuDNN's description of `graph`. The identifier of a tensor is 1 more than its index in values().
/// Throws Error where cuDNN does not accept it. `handle`: of the GPU that it is for; null: none
/// here.
Descriptor describe(const OperationGraph& graph, cudnnHandle_t handle = nullptr);

}  // namespace ringtrain::cuda
