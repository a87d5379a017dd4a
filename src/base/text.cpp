#include "ringtrain/base/text.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>
#include <utility>

namespace ringtrain {

namespace {

template <class T>
T between(std::string_view text, T low, T high, std::string_view kind) {
  const std::optional<T> value = number_in<T>(text);
  // written so that a NaN fails too
  if (!value || !(*value >= low && *value <= high))
    throw BadValue(fmt::format("must be a {} from {} to {}", kind, low, high));
  return *value;
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

std::vector<std::string> lines_in(std::string_view text) {
  std::vector<std::string> lines;
  for (std::string& line : split(text, '\n')) {
    if (line.ends_with('\r')) line.pop_back();
    if (!line.empty()) lines.push_back(std::move(line));
  }
  return lines;
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

std::string brief(std::string_view text, std::size_t most) {
  if (text.size() <= most) return printable(text);
  std::size_t head = most / 2, tail = text.size() - most / 2;
  for (int i = 0; i < 3 && continues(text[head]); ++i) --head;
  for (int i = 0; i < 3 && continues(text[tail]); ++i) ++tail;
  return printable(text.substr(0, head)) + " ... " + printable(text.substr(tail));
}

namespace {

/// Bytes of the UTF-8 sequence that `lead` begins; 0 when none begins so.
std::size_t sequence_length(unsigned char lead) {
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead < 0xE0) return 2;
  if (lead >= 0xE0 && lead < 0xF0) return 3;
  if (lead >= 0xF0 && lead < 0xF5) return 4;
  return 0;
}

}  // namespace

bool is_utf8(std::string_view text) {
  const auto continues = [](char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; };
  while (!text.empty()) {
    const auto lead = static_cast<unsigned char>(text[0]);
    const std::size_t length = sequence_length(lead);
    if (length == 0 || length > text.size()) return false;
    const auto rest = text.substr(1, length - 1);
    if (!std::ranges::all_of(rest, continues)) return false;
    const auto second = length > 1 ? static_cast<unsigned char>(text[1]) : 0;
    const bool overlong = (lead == 0xE0 && second < 0xA0) || (lead == 0xF0 && second < 0x90);
    const bool beyond = (lead == 0xED && second > 0x9F) || (lead == 0xF4 && second > 0x8F);
    if (overlong || beyond) return false;
    text.remove_prefix(length);
  }
  return true;
}

namespace {

/// Of one character; a byte above 127 that stands alone is none of UTF-8.
bool is_control(std::string_view character) {
  const auto lead = static_cast<unsigned char>(character[0]);
  if (character.size() == 1) return lead < 0x20 || lead >= 0x7F;
  return lead == 0xC2 && static_cast<unsigned char>(character[1]) < 0xA0;  // U+0080 to U+009F
}

}  // namespace

std::string printable(std::string_view text) {
  const bool utf8 = is_utf8(text);
  std::string shown;
  for (std::size_t length = 0; !text.empty(); text.remove_prefix(length)) {
    length = utf8 ? sequence_length(static_cast<unsigned char>(text[0])) : 1;
    const auto character = text.substr(0, length);
    if (is_control(character))
      for (const char c : character)
        shown += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    else
      shown += character;
  }
  return shown;
}

namespace {

/// A letter and the marks behind it.
using Character = std::vector<std::uint32_t>;

/// Accents; Arabic vowels; vowels and finals of Korean; voicing of Japanese.
bool is_mark(std::uint32_t code) {
  const auto within = [code](std::uint32_t low, std::uint32_t high) {
    return low <= code && code <= high;
  };
  return within(0x300, 0x36F) || within(0x64B, 0x65F) || within(0x1161, 0x11FF) ||
         within(0x3099, 0x309A);
}

/// Of UTF-8.
std::uint32_t code_of(std::string_view sequence) {
  const auto lead = static_cast<unsigned char>(sequence[0]);
  std::uint32_t code = sequence.size() == 1 ? lead : lead & (0xFFu >> (sequence.size() + 1));
  for (const char c : sequence.substr(1)) code = code << 6 | (static_cast<unsigned char>(c) & 0x3F);
  return code;
}

std::vector<Character> characters_of(std::string_view text) {
  std::vector<Character> characters;
  for (std::size_t length = 0; !text.empty(); text.remove_prefix(length)) {
    length = sequence_length(static_cast<unsigned char>(text[0]));
    const std::uint32_t code = code_of(text.substr(0, length));
    if (characters.empty() || !is_mark(code)) characters.emplace_back();
    characters.back().push_back(code);
  }
  return characters;
}

std::string codes(const Character& character) {
  std::string text;
  for (const std::uint32_t code : character)
    text += fmt::format("{}U+{:04X}", text.empty() ? "" : " ", code);
  return text;
}

/// The shorter one of the two has a letter that others compose: no ASCII.
bool may_look_alike(const Character& a, const Character& b) {
  return a == b || (a.size() != b.size() && (a.size() < b.size() ? a : b)[0] > 0x7F);
}

}  // namespace

std::optional<std::pair<std::string, std::string>> composed_otherwise(std::string_view a,
                                                                      std::string_view b) {
  if (a == b || !is_utf8(a) || !is_utf8(b)) return std::nullopt;
  const auto ours = characters_of(a), theirs = characters_of(b);
  if (!std::ranges::equal(ours, theirs, may_look_alike)) return std::nullopt;
  const auto [one, other] = std::ranges::mismatch(ours, theirs);
  return std::pair(codes(*one), codes(*other));
}

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Levenshtein's distance, where two letters that changed places are one edit. A digit is no slip of
// the finger: cifar100 is not cifar10.
std::size_t edits(std::string_view from, std::string_view to) {
  constexpr std::size_t far = 100;
  const auto cost = [](char c) { return is_digit(c) ? far : 1; };
  std::vector<std::size_t> before(to.size() + 1), row(to.size() + 1), next(to.size() + 1);
  for (std::size_t j = 0; j < to.size(); ++j) row[j + 1] = row[j] + cost(to[j]);
  for (std::size_t i = 0; i < from.size(); ++i) {
    next[0] = row[0] + cost(from[i]);
    for (std::size_t j = 0; j < to.size(); ++j) {
      const std::size_t other = from[i] == to[j] ? 0 : std::max(cost(from[i]), cost(to[j]));
      next[j + 1] = std::min({row[j] + other, next[j] + cost(to[j]), row[j + 1] + cost(from[i])});
      const bool swapped = i > 0 && j > 0 && from[i] == to[j - 1] && from[i - 1] == to[j];
      if (swapped) next[j + 1] = std::min(next[j + 1], before[j - 1] + 1);
    }
    before.swap(row);
    row.swap(next);
  }
  return row.back();
}

}  // namespace

std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates) {
  constexpr std::size_t shortest_abbreviation = 3, most_compared = 64;
  const auto distance = [&](const std::string& candidate) {
    const bool abbreviated = word.size() >= shortest_abbreviation && candidate.starts_with(word);
    return abbreviated ? 0 : edits(word.substr(0, most_compared), candidate);
  };
  const auto nearest = std::ranges::min_element(candidates, {}, distance);
  const std::size_t near = std::max<std::size_t>(word.empty() ? 0 : 1, word.size() / 6);
  if (nearest == candidates.end() || distance(*nearest) > near) return "";
  return "; did you mean " + *nearest + "?";
}

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

std::string grouped(std::size_t number) {
  std::string digits = std::to_string(number);
  for (auto at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > 0; at -= 3)
    digits.insert(static_cast<std::size_t>(at), 1, ',');
  return digits;
}

}  // namespace ringtrain
