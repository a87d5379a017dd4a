#pragma once
#include <map>
#include <span>
#include <string>
#include <vector>

#include "ringtrain/model/graph.hpp"

namespace ringtrain::model {

/// How the numbers of a row of a tensor lie: channels x pixels in PyTorch, pixels x channels here.
struct RowLayout {
  std::size_t channels = 1, pixels = 1;
};

/// The rows that differ, by the name of the parameter: of convolutions, and of layers behind a
/// flattened image.
std::map<std::string, RowLayout> row_layouts(const Graph& graph);

/// Copies whole rows of one layout to the other. Both have the same size, and do not overlap.
void from_torch_layout(std::span<const float> theirs, RowLayout row, std::span<float> ours);
void to_torch_layout(std::span<const float> ours, RowLayout row, std::span<float> theirs);

/// A tensor of a PyTorch module's state dictionary, and which numbers of the graph it has.
struct TorchTensor {
  enum class Values {
    parameters,  ///< `place` in the flat buffer of parameters
    statistics,  ///< `place` in that of statistics
    ones,        ///< a gamma that the graph does without
    counter,     ///< of batches that a BatchNorm has seen: one whole number
  };
  std::string name;
  std::vector<std::size_t> dims;  ///< PyTorch's; none of a counter
  Values values = Values::parameters;
  Range place = {};
  RowLayout row = {};
};

/// All tensors that a module of the graph's layers has in PyTorch, torchvision and timm, under the
/// names that it loads with strict=True.
std::vector<TorchTensor> torch_state(const Graph& graph);

}  // namespace ringtrain::model
