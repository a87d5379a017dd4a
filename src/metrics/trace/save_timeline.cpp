#include "ringtrain/metrics/trace/save_timeline.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "metrics/trace/chrome_trace.hpp"
#include "ringtrain/base/atomic_file.hpp"
#include "ringtrain/base/text.hpp"
#include "ringtrain/host/run_with_timeout.hpp"

namespace ringtrain::metrics {
namespace {

using Spans = std::vector<Timeline::Span>;

constexpr std::size_t spans_a_chunk = 4096;  // that rank 0 holds of each rank

// What holds others comes before them.
Spans in_order(Spans spans) {
  std::ranges::sort(spans, [](const auto& a, const auto& b) {
    return a.begin_ns != b.begin_ns ? a.begin_ns < b.begin_ns : a.end_ns > b.end_ns;
  });
  return spans;
}

std::int64_t shifted(std::int64_t ns, const allreduce::ClockOffset& before,
                     const allreduce::ClockOffset& after) {
  const double own = double(ns) * 1e-9;
  return ns + std::llround((allreduce::by_other_clock(own, before, after) - own) * 1e9);
}

std::set<std::uint32_t> rows_of(const Spans& spans) {
  std::set<std::uint32_t> rows;
  for (const Timeline::Span& span : spans) rows.insert(span.row);
  return rows;
}

// "12 host name" as "host\n0 3 4"
std::string names_text(const std::string& host, const Spans& spans) {
  std::string text = host + "\n";
  for (const std::uint32_t row : rows_of(spans)) text += fmt::format("{} ", row);
  return text;
}

void write_names(std::ostream& file, int rank, const std::string& text) {
  const std::size_t end = text.find('\n');
  std::set<std::uint32_t> rows;
  for (const std::string& word : split(text.substr(end + 1), ' '))
    if (const auto row = number_in<std::uint32_t>(word)) rows.insert(*row);
  file << trace_names(rank, text.substr(0, end), rows);
}

std::string chunk_of(const Spans& spans, std::size_t first) {
  if (first >= spans.size()) return "";
  const auto some = std::span(spans).subspan(first, std::min(spans_a_chunk, spans.size() - first));
  return {reinterpret_cast<const char*>(some.data()), some.size_bytes()};
}

void write_chunk(std::ostream& file, int rank, const std::string& chunk, std::int64_t origin_ns) {
  Timeline::Span span;
  for (std::size_t at = 0; at + sizeof span <= chunk.size(); at += sizeof span) {
    std::memcpy(&span, chunk.data() + at, sizeof span);
    file << trace_span(rank, span, origin_ns);
  }
}

std::size_t most_of(std::size_t mine, const allreduce::MpiSession& session) {
  std::uint64_t most = 0;
  for (const std::string& text : session.gather(std::to_string(mine)))
    most = std::max<std::uint64_t>(most, unsigned_number(text));
  session.broadcast(std::as_writable_bytes(std::span(&most, 1)), 0);
  return most;
}

std::int64_t origin_of(const Spans& spans) { return spans.empty() ? 0 : spans.front().begin_ns; }

std::string about(const Timeline& timeline, double doubt_s) {
  std::string text = fmt::format("times are by rank 0's clock, to {:.0f} us", doubt_s * 1e6);
  if (timeline.added() > timeline.capacity())
    text +=
        fmt::format("; the newest {} spans of each rank are kept (--timeline-spans), rank 0 had {}",
                    timeline.capacity(), timeline.added());
  return text;
}

// What all ranks hand in, to a file on the first one.
void write_all(std::ostream& file, const Spans& spans, const allreduce::MpiSession& session) {
  file << trace_head();
  int rank = 0;
  for (const std::string& text : session.gather(names_text(session.host(), spans)))
    write_names(file, rank++, text);
  const std::size_t most = most_of(spans.size(), session);
  for (std::size_t first = 0; first < most; first += spans_a_chunk) {
    rank = 0;
    for (const std::string& chunk : session.gather(chunk_of(spans, first)))
      write_chunk(file, rank++, chunk, origin_of(spans));
  }
}

}  // namespace

SavedTimeline save_timeline(const Timeline& timeline, const std::string& path,
                            const allreduce::ClockOffset& before,
                            const allreduce::ClockOffset& after,
                            const allreduce::MpiSession& session) {
  Spans spans = timeline.spans();
  for (Timeline::Span& span : spans) {
    span.begin_ns = shifted(span.begin_ns, before, after);
    span.end_ns = shifted(span.end_ns, before, after);
  }
  spans = in_order(std::move(spans));
  double doubt_s = std::max(before.doubt, after.doubt);
  for (const std::string& text : session.gather(fmt::format("{}", doubt_s)))
    doubt_s = std::max(doubt_s, number_in<double>(text).value_or(0));
  if (session.rank() > 0) {
    std::ostream nowhere(nullptr);
    write_all(nowhere, spans, session);
    return {};
  }
  bool gathered = false;
  const std::string reason = write_output(path, Durable::yes, [&](std::ostream& file) {
    gathered = true;
    write_all(file, spans, session);
    file << trace_tail(about(timeline, doubt_s));
  });
  if (!gathered) {  // the other ranks wait for rank 0 in it
    std::ostream nowhere(nullptr);
    write_all(nowhere, spans, session);
  }
  if (!reason.empty()) return {false, fmt::format("{}: {}", path, reason)};
  return {true, fmt::format("timeline: {}; {}", path, about(timeline, doubt_s))};
}

namespace {

std::string write_own(const Timeline& timeline, const std::string& path, const std::string& host) {
  const Spans spans = in_order(timeline.spans());
  const std::string reason = write_output(path, Durable::in_a_while, [&](std::ostream& file) {
    file << trace_head() << trace_names(0, host, rows_of(spans));
    for (const Timeline::Span& span : spans) file << trace_span(0, span, origin_of(spans));
    file << trace_tail("rank 0 alone: the job ended before the others' spans came");
  });
  if (!reason.empty()) return fmt::format("no timeline: {}: {}", path, reason);
  return fmt::format("rank 0's own timeline is in {}", path);
}

}  // namespace

std::string save_own_timeline(const Timeline& timeline, const std::string& path,
                              const std::string& host, std::chrono::milliseconds patience) {
  return host::run_with_timeout(
      patience, [&timeline, path, host] { return write_own(timeline, path, host); },
      "no timeline: its file cannot be written in time");
}

}  // namespace ringtrain::metrics
