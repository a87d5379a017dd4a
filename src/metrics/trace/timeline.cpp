#include "ringtrain/metrics/trace/timeline.hpp"

#include <algorithm>
#include <chrono>

namespace ringtrain::metrics {
namespace {

std::int64_t nanoseconds(Timeline::Clock::time_point moment) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(moment.time_since_epoch()).count();
}

}  // namespace

std::string_view number_name_of(Phase phase) {
  if (phase == Phase::sum) return "bytes";
  return phase == Phase::batch ? "batch" : "step";
}

void Timeline::add(Phase phase, const TimeSpan& span, Row row, int thread) noexcept {
  constexpr auto relaxed = std::memory_order_relaxed;
  Place& place = places_[added_.fetch_add(1, std::memory_order_acq_rel) % places_.size()];
  const std::uint64_t shown_in =
      static_cast<std::uint64_t>(row) + static_cast<std::uint64_t>(thread);
  place[0].store(static_cast<std::uint64_t>(nanoseconds(span.begin)), relaxed);
  place[1].store(static_cast<std::uint64_t>(nanoseconds(span.end)), relaxed);
  place[2].store(span.number, relaxed);
  place[3].store(shown_in << 8 | static_cast<std::uint64_t>(phase), relaxed);
}

void Timeline::add(Phase phase, Clock::time_point begin, double seconds, std::uint64_t number,
                   Row row) noexcept {
  add(phase, {begin, begin + length(seconds), number}, row);
}

std::vector<Timeline::Span> Timeline::spans() const {
  const std::uint64_t end = added(), kept = std::min<std::uint64_t>(end, places_.size());
  std::vector<Span> all;
  all.reserve(kept);
  for (std::uint64_t n = end - kept; n < end; ++n) {
    std::array<std::uint64_t, 4> values{};
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = places_[n % places_.size()][i];
    if (values[1] < values[0] || values[0] == 0) continue;  // being written
    all.push_back({static_cast<std::int64_t>(values[0]), static_cast<std::int64_t>(values[1]),
                   values[2], static_cast<std::uint32_t>(values[3] >> 8),
                   static_cast<Phase>(values[3] & 0xff)});
  }
  return all;
}

}  // namespace ringtrain::metrics
