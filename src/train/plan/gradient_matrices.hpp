#pragma once
#include <vector>

#include "ringtrain/allreduce/communicator/compression.hpp"
#include "ringtrain/model/graph.hpp"

namespace ringtrain::train {

/// The gradient's tensors, in the order of the flat buffer, as --compress takes them: a row for
/// each output of a layer; what has one extent is a single row.
std::vector<allreduce::GradientMatrix> gradient_matrices(const model::Graph& graph);

}  // namespace ringtrain::train
