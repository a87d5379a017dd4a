#pragma once
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ringtrain/model/onnx.hpp"
#include "ringtrain/model/torch_state.hpp"

namespace ringtrain::model {

/// A layer's numbers, as ONNX has them: row-major out x in x kernel. No bias: `b` is empty.
struct OnnxLayer {
  std::vector<float> w, b;
};

/// The numbers of a graph, with BatchNorms in the layers before them or by themselves. What it is
/// made of outlives it.
class OnnxWeights {
 public:
  /// `fold`: take in BatchNorms that alone read a layer, of the nodes that are `needed`.
  OnnxWeights(const Graph& graph, const GraphValues& values, const std::vector<bool>& needed,
              bool fold);

  std::span<const float> parameter(ParameterId id) const;
  /// What the convolution or matrix product `node` multiplies by and adds.
  OnnxLayer layer(const Node& node, ParameterId w, std::optional<ParameterId> b) const;
  /// Whether the layer that makes `x` does what its BatchNorm would.
  bool is_folded(compute::TensorId x) const { return folded_.contains(x); }

  std::vector<float> gamma(const BatchNorm& norm) const;
  std::span<const float> mean(const BatchNorm& norm) const;
  std::span<const float> variance(const BatchNorm& norm) const;

 private:
  void find_folded(const std::vector<bool>& needed);

  const Graph& graph_;
  const GraphValues& values_;
  const std::vector<compute::ParameterRange> parameters_;
  const std::vector<compute::StatisticsRange> statistics_;
  const std::map<std::string, RowLayout> rows_;
  std::map<compute::TensorId, const BatchNorm*> folded_;  // by what it reads
};

}  // namespace ringtrain::model
