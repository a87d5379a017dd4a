#include "metrics/trace/chrome_trace.hpp"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

namespace ringtrain::metrics {
namespace {

std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

// Of a process, or of one of its threads. Every event but the last ends with a comma.
std::string metadata(const char* what, int rank, std::uint32_t row, const std::string& arguments) {
  return fmt::format(R"({{"name":"{}","ph":"M","pid":{},"tid":{},"args":{{{}}}}},)"
                     "\n",
                     what, rank, row, arguments);
}

std::string title_of(std::uint32_t row) {
  const auto from = [row](Row first) { return row - static_cast<std::uint32_t>(first); };
  if (row >= static_cast<std::uint32_t>(Row::loader))
    return fmt::format("loader {}", from(Row::loader));
  if (row == static_cast<std::uint32_t>(Row::writer)) return "checkpoint writer";
  if (row == static_cast<std::uint32_t>(Row::gpu)) return "GPU";
  if (row > static_cast<std::uint32_t>(Row::sums)) return fmt::format("sums {}", from(Row::sums));
  return row == static_cast<std::uint32_t>(Row::sums) ? "sums" : "main thread";
}

double microseconds(std::int64_t nanoseconds) { return double(nanoseconds) / 1000; }

}  // namespace

std::string trace_head() { return "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n"; }

std::string trace_names(int rank, const std::string& host, const std::set<std::uint32_t>& rows) {
  std::string text =
      metadata("process_name", rank, 0,
               fmt::format("\"name\":{}", quoted(fmt::format("rank {} ({})", rank, host)))) +
      metadata("process_sort_index", rank, 0, fmt::format("\"sort_index\":{}", rank));
  for (const std::uint32_t row : rows)
    text += metadata("thread_name", rank, row, fmt::format("\"name\":{}", quoted(title_of(row)))) +
            metadata("thread_sort_index", rank, row, fmt::format("\"sort_index\":{}", row));
  return text;
}

std::string trace_span(int rank, const Timeline::Span& span, std::int64_t origin_ns) {
  return fmt::format(
      R"({{"name":"{}","ph":"X","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f},"args":{{"{}":{}}}}},)"
      "\n",
      phase_names(span.phase).timeline, rank, span.row, microseconds(span.begin_ns - origin_ns),
      microseconds(span.end_ns - span.begin_ns), number_name_of(span.phase), span.number);
}

std::string trace_tail(const std::string& about) {
  return fmt::format(R"({{"name":"about","ph":"M","pid":0,"tid":0,"args":{{"text":{}}}}})"
                     "\n]}}\n",
                     quoted(about));
}

}  // namespace ringtrain::metrics
