#pragma once
#include <memory>
#include <string>

#include "metrics/record_sink.hpp"

namespace ringtrain::metrics {

/// Writes `path`, one HTML page that needs nothing else: throughput with what happened, where the
/// time of a step went, loss and accuracy, ranks, scaling, checkpoints, events, configuration. It
/// is written anew after an evaluation, at the end, and else once a minute; a reader sees one whole
/// page or the other.
/// Throws Error(Exit::storage) when the file cannot be made.
std::unique_ptr<RecordSink> make_report(const std::string& path, RecordSink::Warn warn);

}  // namespace ringtrain::metrics
