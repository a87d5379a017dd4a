#pragma once
#include <charconv>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace ringtrain {

/// Why a text is not the value that is wanted: "must be ...". The caller adds of what, and the
/// text.
struct BadValue : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

/// The parts between separators; at least one, possibly empty.
std::vector<std::string> split(std::string_view text, char separator);

/// The lines of `text`, ended by LF or CRLF, but for empty ones.
std::vector<std::string> lines_in(std::string_view text);

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

/// Whether `text` is UTF-8: no overlong form, no surrogate, nothing beyond U+10FFFF.
bool is_utf8(std::string_view text);

/// `text` as it can be shown and stored as UTF-8, so that what a file or a command line brings in
/// cannot disturb a terminal: the bytes of control characters and, where the text is not UTF-8, all
/// bytes above 127 become \xNN.
std::string printable(std::string_view text);

/// Where two texts of UTF-8 look alike and differ in how characters are composed (Unicode's NFC and
/// NFD): their first such character, as "U+00E9" and "U+0065 U+0301". Which letter and which mark
/// make another is not known here, so other marks pass, too. Nullopt where they differ otherwise.
std::optional<std::pair<std::string, std::string>> composed_otherwise(std::string_view a,
                                                                      std::string_view b);

/// "; did you mean NAME?" with the candidate that `word` abbreviates, else the one with the fewest
/// edits from it: a letter more, less, another, or two in each other's place. Empty where that is
/// more than a sixth of the word and more than one, and where digits differ.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates);

inline constexpr double mega = 1e6, giga = 1e9;

/// Seconds of "90", "90s", "15m", "1h30m", "2d" or "23:59:00" (as Slurm writes times). Throws
/// BadValue.
double duration(std::string_view text);
/// A short text that duration() reads back exactly: "90s", "15m", "1h30m".
std::string duration_text(double seconds);

/// Ascending numbers as "0-3,8".
std::string ranges_text(const std::vector<int>& numbers);
/// "1 cpu", "2 cpus"
std::string plural(std::size_t count, std::string_view noun);

/// `text` in lines of at most `width` columns, every line but the first behind `indent` spaces.
std::string wrapped(std::string_view text, std::size_t indent, std::size_t width);

/// 1234567 as 1,234,567.
std::string grouped(std::size_t number);

}  // namespace ringtrain
