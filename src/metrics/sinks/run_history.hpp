#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ringtrain/metrics/records.hpp"

namespace ringtrain::metrics {

/// A record and when it came: seconds since training began.
template <class Record>
struct At {
  double seconds = 0;
  Record record;
};

/// All records of a run so far, in order.
struct RunHistory {
  StartRecord start;
  std::vector<At<StepRecord>> steps;
  std::vector<At<EvalRecord>> evaluations;
  std::optional<ClassRecord> classes;
  std::vector<At<CheckpointRecord>> checkpoints;
  std::vector<At<EventRecord>> events;
  std::optional<ScalingResult> baseline;
  std::optional<ScalingForecast> links;
  std::optional<EndRecord> end;
};

/// What the page says of an evaluation's classes; empty where there was none.
std::string class_page(const RunHistory& run);

/// The run as a page. `written`: when, for the reader.
std::string report_page(const RunHistory& run, const std::string& written);

}  // namespace ringtrain::metrics
