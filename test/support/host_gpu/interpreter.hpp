#pragma once
#include <span>
#include <string>
#include <vector>

#include "compute/cuda/engines/operation_graph.hpp"

namespace ringtrain::host_gpu {

/// Bytes of a value in memory.
std::size_t bytes_of(const compute::cuda::OperationGraph::Value& value);

/// Does what `graph` says, with plain loops, in fp32; `data` is the memory of each value, null for
/// those without operand. All operands are read before any is written.
void interpret(const compute::cuda::OperationGraph& graph, std::span<void* const> data);

}  // namespace ringtrain::host_gpu
