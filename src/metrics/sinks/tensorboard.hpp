#pragma once
#include <memory>
#include <string>

#include "metrics/record_sink.hpp"

namespace ringtrain::metrics {

/// Writes what happens as scalars and texts for TensorBoard, into a new event file in `directory`,
/// which is made if need be. A resumed run hides what an earlier one wrote of the steps behind its
/// start. Each record is in the file when write() returns.
/// Throws Error(Exit::storage) when the file cannot be made.
std::unique_ptr<RecordSink> make_tensorboard(const std::string& directory, RecordSink::Warn warn);

}  // namespace ringtrain::metrics
