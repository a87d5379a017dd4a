#include "train/checkpoint/save_alerts.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>

#include "ringtrain/metrics/log_text.hpp"

namespace ringtrain::train {
namespace {

// Texts that differ in steps, seconds and free bytes only tell of one cause.
std::string cause_of(std::string text) {
  std::erase_if(text, [](unsigned char c) { return std::isdigit(c); });
  return text;
}

}  // namespace

std::string SaveAlerts::trouble(const io::SaveEvent& event) {
  late_ = late_ || event.kind == io::SaveEvent::Kind::slow ||
          event.kind == io::SaveEvent::Kind::skipped;
  if (!told_.insert(cause_of(event.text)).second) return "";
  return fmt::format("{}; {}", event.text, last_good());
}

std::string SaveAlerts::good(const io::SaveEvent& event) {
  last_.emplace(event.step, Stopwatch());
  if (told_.empty() || std::exchange(late_, false)) return "";
  told_.clear();
  return fmt::format("saving works again: the checkpoint of step {} is durable", event.step);
}

std::string SaveAlerts::last_good() const {
  constexpr const char* begin = "the last good checkpoint is of step";
  if (last_)
    return fmt::format("{} {}, {} ago", begin, last_->first,
                       metrics::duration_words(last_->second.elapsed()));
  if (resumed_step_ > 0)
    return fmt::format("{} {}, from which training went on", begin, resumed_step_);
  return "there is no good checkpoint yet";
}

}  // namespace ringtrain::train
