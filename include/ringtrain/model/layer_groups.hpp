#pragma once
#include <set>
#include <vector>

#include "ringtrain/model/graph.hpp"

namespace ringtrain::model {

/// The parameters of the layers whose outputs are logits, also behind operations without any, and
/// those of auxiliary losses.
std::set<ParameterId> head_parameters(const Graph& graph);

/// Of each node, whether only auxiliary losses need it: evaluation does without.
std::vector<bool> auxiliary_nodes(const Graph& graph);

/// How deep each parameter lies, as layer-wise decay of the learning rate counts it: 0 is what
/// stands before the first block, then comes a layer for each block that the network is made of.
/// What follows a block without one of its own is of its layer, and a block without an activation
/// is of the next one's. Networks without blocks have a layer for each convolution and matrix
/// product. The last layer is the head: what stands behind the last global pool, or gives logits,
/// and auxiliary heads.
std::vector<int> layer_depths(const Graph& graph);

}  // namespace ringtrain::model
