#include "ringtrain/base/fault.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

namespace ringtrain {
namespace {

bool is_plain(char c) {
  constexpr std::string_view marks = "_-+.,:/@%=~";
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || marks.find(c) != marks.npos;
}

bool is_control(char c) { return static_cast<unsigned char>(c) < ' ' || c == 0x7f; }

}  // namespace

void FaultContext::resume_from(std::string path) {
  const std::lock_guard lock(mutex_);
  resume_ = std::move(path);
}

// A thread that was stopped may hold the lock for ever.
std::string FaultContext::resume() const {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  return lock ? resume_ : "";
}

std::string key_value(std::string_view key, std::string_view value) {
  std::string text = " " + std::string(key) + "=";
  if (!value.empty() && std::ranges::all_of(value, is_plain)) return text.append(value);
  text += '"';
  for (const char c : value) {
    if (c == '"' || c == '\\') text += '\\';
    text += is_control(c) ? '?' : c;
  }
  return text + '"';
}

std::string fault_line(Exit code, std::string_view kind, int rank, const FaultContext& context,
                       std::string_view details) {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  const std::string resume = context.resume();
  return "fault:" + key_value("kind", kind) +
         key_value("code", std::to_string(static_cast<int>(code))) +
         key_value("rank", std::to_string(rank)) + key_value("host", host.data()) +
         key_value("step", std::to_string(context.step())) +
         key_value("resume", resume.empty() ? "none" : resume) + std::string(details) + "\n";
}

}  // namespace ringtrain
