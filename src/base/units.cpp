#include "ringtrain/base/units.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

namespace ringtrain {
namespace {

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
    const auto value = number_in<std::uint32_t>(part);
    if (!value) return std::nullopt;
    seconds = seconds * 60 + *value;
  }
  return seconds;
}

std::optional<double> units_time(std::string_view text) {
  double seconds = 0, last_unit = 1e9;
  while (!text.empty()) {
    const std::size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
    const auto value = number_in<double>(text.substr(0, digits));
    const double unit = digits < text.size() ? seconds_of(text[digits]) : 1;
    if (!value || unit == 0 || unit >= last_unit) return std::nullopt;
    seconds += *value * unit;
    last_unit = unit;
    text.remove_prefix(std::min(digits + 1, text.size()));
  }
  return seconds;
}

}  // namespace

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

std::string ranges_text(const std::vector<int>& numbers) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    text += fmt::format("{}{}", text.empty() ? "" : ",", numbers[i]);
    if (last > i) text += fmt::format("-{}", numbers[last]);
    i = last + 1;
  }
  return text;
}

std::string plural(std::size_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
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
