#include "train/text.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "ringtrain/base/printable.hpp"

namespace ringtrain {
namespace {

template <class T>
std::optional<T> whole_text(std::string_view text) {
  T value{};
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

template <class T>
T between(std::string_view text, T low, T high, std::string_view kind) {
  const std::optional<T> value = whole_text<T>(text);
  // written so that a NaN fails too
  if (!value || !(*value >= low && *value <= high))
    throw BadValue(fmt::format("must be a {} from {} to {}", kind, low, high));
  return *value;
}

double seconds_of(char unit) {
  switch (unit) {
    case 's':
      return 1;
    case 'm':
      return 60;
    case 'h':
      return 3600;
    case 'd':
      return 86400;
    default:
      return 0;
  }
}

std::optional<double> clock_time(std::string_view text) {
  double seconds = 0;
  for (const std::string& part : split(text, ':')) {
    const auto value = whole_text<std::uint32_t>(part);
    if (!value) return std::nullopt;
    seconds = seconds * 60 + *value;
  }
  return seconds;
}

std::optional<double> units_time(std::string_view text) {
  double seconds = 0, last_unit = 1e9;
  while (!text.empty()) {
    const std::size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
    const auto value = whole_text<double>(text.substr(0, digits));
    const double unit = digits < text.size() ? seconds_of(text[digits]) : 1;
    if (!value || unit == 0 || unit >= last_unit) return std::nullopt;
    seconds += *value * unit;
    last_unit = unit;
    text.remove_prefix(std::min(digits + 1, text.size()));
  }
  return seconds;
}

/// Whether `c` goes on with a character of UTF-8 that began before.
bool continues(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

}  // namespace

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == separator)
      parts.emplace_back();
    else
      parts.back() += c;
  }
  return parts;
}

std::int64_t whole_between(std::string_view text, std::int64_t low, std::int64_t high) {
  return between(text, low, high, "whole number");
}

double number_between(std::string_view text, double low, double high) {
  return between(text, low, high, "number");
}

std::uint64_t unsigned_number(std::string_view text) {
  return between(text, std::uint64_t{0}, std::numeric_limits<std::uint64_t>::max(), "whole number");
}

double duration(std::string_view text) {
  const auto seconds = text.find(':') == text.npos ? units_time(text) : clock_time(text);
  if (text.empty() || !seconds || !(*seconds <= 1e9))
    throw BadValue("must be a time such as 90, 90s, 15m, 1h30m or 01:30:00");
  return *seconds;
}

std::string duration_text(double seconds) {
  if (seconds < 120 || seconds != std::floor(seconds)) return fmt::format("{}s", seconds);
  std::string text;
  for (const char unit : {'d', 'h', 'm', 's'}) {
    const double count = std::floor(seconds / seconds_of(unit));
    if (count > 0) text += fmt::format("{:.0f}{}", count, unit);
    seconds -= count * seconds_of(unit);
  }
  return text;
}

std::string brief(std::string_view text) {
  constexpr std::size_t most = 400;
  if (text.size() <= most) return printable(text);
  std::size_t head = most / 2, tail = text.size() - most / 2;
  for (int i = 0; i < 3 && continues(text[head]); ++i) --head;
  for (int i = 0; i < 3 && continues(text[tail]); ++i) ++tail;
  return printable(text.substr(0, head)) + " ... " + printable(text.substr(tail));
}

std::string wrapped(std::string_view text, std::size_t indent, std::size_t width) {
  std::string lines;
  std::size_t column = indent;
  for (const std::string& word : split(text, ' ')) {
    if (column > indent && column + 1 + word.size() > width) {
      lines += "\n" + std::string(indent, ' ');
      column = indent;
    } else if (column > indent) {
      lines += ' ';
      ++column;
    }
    lines += word;
    column += word.size();
  }
  return lines;
}

}  // namespace ringtrain
