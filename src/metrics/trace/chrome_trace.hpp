#pragma once
#include <set>
#include <string>

#include "ringtrain/metrics/trace/timeline.hpp"

namespace ringtrain::metrics {

/// Parts of a file in Chrome's trace event format, which Perfetto and chrome://tracing show: a
/// process a rank and a thread a row. In this order: the head, of each rank its names and spans in
/// any order, the tail.
std::string trace_head();
/// `rows`: those that have spans.
std::string trace_names(int rank, const std::string& host, const std::set<std::uint32_t>& rows);
/// Times are shown from `origin_ns` on.
std::string trace_span(int rank, const Timeline::Span& span, std::int64_t origin_ns);
/// `about`: of the file, for the reader.
std::string trace_tail(const std::string& about);

}  // namespace ringtrain::metrics
