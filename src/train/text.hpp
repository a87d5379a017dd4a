#pragma once
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace ringtrain {

/// Why a text is not the value of an option: "must be ...". The caller adds which option and text.
struct BadValue : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

/// The parts between separators; at least one, possibly empty.
std::vector<std::string> split(std::string_view text, char separator);

/// The number that is all of `text`. Throws BadValue when it is none or outside the bounds.
std::int64_t whole_between(std::string_view text, std::int64_t low, std::int64_t high);
double number_between(std::string_view text, double low, double high);
/// Any unsigned 64-bit number.
std::uint64_t unsigned_number(std::string_view text);

/// Seconds of "90", "90s", "15m", "1h30m", "2d" or "23:59:00" (as Slurm writes times). Throws
/// BadValue.
double duration(std::string_view text);
/// A short text that duration() reads back exactly: "90s", "15m", "1h30m".
std::string duration_text(double seconds);

/// `text` as printable() shows it, and its middle left out beyond 400 bytes.
std::string brief(std::string_view text);

/// `text` in lines of at most `width` columns, every line but the first behind `indent` spaces.
std::string wrapped(std::string_view text, std::size_t indent, std::size_t width);

}  // namespace ringtrain
