#pragma once
#include <map>
#include <ostream>
#include <span>
#include <string>

#include "ringtrain/model/graph.hpp"

namespace ringtrain::model {

/// A graph's numbers, in the order of its flat buffers.
struct GraphValues {
  std::span<const float> parameters, statistics;
};

struct OnnxOptions {
  /// A BatchNorm becomes part of the convolution, or matrix product, that it alone reads.
  bool fold_batch_norm = false;
  /// The input is what an image decodes to, uint8 batch x height x width x channels, and is
  /// normalised here. Else it is fp32 batch x channels x height x width, already normalised.
  bool uint8_input = false;
  std::string name{};                             ///< of the network
  std::map<std::string, std::string> metadata{};  ///< the model's metadata_props, in UTF-8
};

/// Writes what evaluation computes, from images to the output `logits`, as a model of ONNX: opset
/// 17, IR version 8. The first extent, `batch`, may be any. Throws Error(Exit::usage) where the
/// numbers do not fit the 2 GiB that such a file may have.
void write_onnx(std::ostream& out, const Graph& graph, const GraphValues& values,
                const OnnxOptions& options);

}  // namespace ringtrain::model
