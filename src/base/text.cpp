#include "ringtrain/base/text.hpp"

#include <fmt/core.h>

#include <limits>

#include "ringtrain/base/printable.hpp"

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

}  // namespace ringtrain
