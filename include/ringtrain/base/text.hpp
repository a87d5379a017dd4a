#pragma once
#include <charconv>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace ringtrain {

/// Why a text is not the value that is wanted: "must be ...". The caller adds of what, and the
/// text.
struct BadValue : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

/// The parts between separators; at least one, possibly empty.
std::vector<std::string> split(std::string_view text, char separator);

/// The number that is all of `text`, where it is one.
template <class T>
std::optional<T> number_in(std::string_view text) {
  T value{};
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// The number that is all of `text`. Throws BadValue when it is none or outside the bounds.
std::int64_t whole_between(std::string_view text, std::int64_t low, std::int64_t high);
double number_between(std::string_view text, double low, double high);
/// Any unsigned 64-bit number.
std::uint64_t unsigned_number(std::string_view text);

/// `text` as printable() shows it, and its middle left out beyond `most` bytes.
std::string brief(std::string_view text, std::size_t most = 400);

}  // namespace ringtrain
