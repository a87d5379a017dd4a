#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "ringtrain/base/text.hpp"

namespace ringtrain {

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

}  // namespace ringtrain
