#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "model/model_file/parse.hpp"
#include "ringtrain/model/graph.hpp"

namespace ringtrain::model {

/// The most values that an image's tensor, or all parameters together, may have.
inline constexpr double most_values = 1 << 30;
/// The most channels and outputs.
inline constexpr int most_channels = 1'000'000;
/// The largest side of an image, and of a window with its stride and padding.
inline constexpr int largest_image = 4096, largest_window = 512;

/// One line that adds an operation to a graph.
struct LayerLine {
  GraphBuilder& graph;
  std::string word;  ///< the operation's
  std::string name;  ///< in full, of what has parameters
  std::vector<compute::TensorId> inputs;
  const Values& values;
  int classes = 0;

  compute::TensorId x() const { return inputs.front(); }
  const compute::Shape& shape() const { return graph.shape(x()); }
};

/// An operation as model files know it.
struct OperationEntry {
  std::string_view word;
  std::size_t least_inputs, most_inputs;
  bool has_parameters;
  std::string_view options;  ///< their names, with spaces between
  /// Adds it; no_tensor where it has no result. Throws Error (usage).
  compute::TensorId (*add)(const LayerLine& line);
};

/// Nothing when there is no such operation.
const OperationEntry* find_operation(std::string_view word);
std::vector<std::string> operation_words();

/// Adds the image that the line `input` describes. Throws Error (usage).
compute::TensorId add_input(GraphBuilder& graph, const Values& values);
inline constexpr std::string_view input_options = "size channels standardise mean deviation clip";

}  // namespace ringtrain::model
