#include "ringtrain/monitor/progress.hpp"

#include <algorithm>
#include <utility>

namespace ringtrain::monitor {

bool waits_for_ranks(metrics::Phase phase) {
  return phase == metrics::Phase::communication || phase == metrics::Phase::gpu ||
         phase == metrics::Phase::ranks;
}

// A reader that sees the version of before and after it has read has read what was written between.
void SharedText::write(std::uint64_t tag, std::string_view text) noexcept {
  text.remove_prefix(text.size() - std::min(text.size(), most));
  const std::uint64_t version = version_.load(std::memory_order_relaxed);
  version_.store(version + 1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  tag_.store(tag, std::memory_order_relaxed);
  size_.store(text.size(), std::memory_order_relaxed);
  for (std::size_t i = 0; i < text.size(); ++i) text_[i].store(text[i], std::memory_order_relaxed);
  version_.store(version + 2, std::memory_order_release);
}

std::string SharedText::read(std::uint64_t tag) const {
  constexpr int tries = 4;
  for (int i = 0; i < tries; ++i) {
    const std::uint64_t before = version_.load(std::memory_order_acquire);
    const bool wanted = tag_.load(std::memory_order_relaxed) == tag;
    std::string text(wanted ? size_.load(std::memory_order_relaxed) : 0, '\0');
    for (std::size_t c = 0; c < text.size(); ++c)
      text[c] = text_[c].load(std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_acquire);
    if (before % 2 == 0 && version_.load(std::memory_order_relaxed) == before) return text;
  }
  return {};
}

void Progress::at(Work work, std::string_view path) noexcept {
  switch (work) {
    case Work::open:
      return enter(metrics::Phase::open, path);
    case Work::list:
      return enter(metrics::Phase::list, path);
    case Work::index:
      return enter(metrics::Phase::index, path);
    case Work::plan:
      return enter(metrics::Phase::plan, path);
    default:
      return enter(now().phase, path);
  }
}

void Progress::finish_step() noexcept {
  const double seconds = watch_.lap();
  if (!std::exchange(timing_, true)) return;
  const std::uint64_t timed = timed_.load(std::memory_order_relaxed);
  step_s_[timed % remembered].store(static_cast<float>(seconds), std::memory_order_relaxed);
  timed_.store(timed + 1, std::memory_order_release);
}

void Progress::account(const metrics::PhaseSeconds& step) noexcept {
  for (std::size_t phase = 0; phase < spent_s_.size(); ++phase)
    spent_s_[phase].store(spent_s_[phase].load(std::memory_order_relaxed) + step.seconds[phase],
                          std::memory_order_relaxed);
  accounted_.store(accounted_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
}

PhaseTotals Progress::spent() const noexcept {
  PhaseTotals spent{accounted_.load(std::memory_order_acquire), {}};
  for (std::size_t phase = 0; phase < spent_s_.size(); ++phase)
    spent.phases.seconds[phase] = spent_s_[phase].load(std::memory_order_relaxed);
  return spent;
}

Progress::Now Progress::now() const noexcept {
  const std::uint64_t now = now_.load(std::memory_order_acquire);
  return {static_cast<metrics::Phase>(now & 0xff),
          (now >> 8) + advanced_.load(std::memory_order_relaxed),
          step_.load(std::memory_order_relaxed)};
}

double Progress::median_step_s() const noexcept {
  const auto timed = std::min<std::uint64_t>(timed_.load(std::memory_order_acquire), remembered);
  if (timed < 3) return 0;
  std::array<float, remembered> last{};
  for (std::size_t i = 0; i < timed; ++i) last[i] = step_s_[i].load(std::memory_order_relaxed);
  const auto middle = last.begin() + timed / 2;
  std::nth_element(last.begin(), middle, last.begin() + timed);
  return *middle;
}

}  // namespace ringtrain::monitor
