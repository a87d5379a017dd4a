#pragma once
#include <cstdint>
#include <limits>
#include <string>

namespace ringtrain::host {

constexpr auto no_limit = std::numeric_limits<std::uint64_t>::max();

/// The number behind `key` in a file of lines "key number" or "key: number"; 0 where there is none.
std::uint64_t number_behind(const std::string& path, const std::string& key);

/// The number that a file begins with.
std::uint64_t number_in_file(const std::string& path, std::uint64_t otherwise);

}  // namespace ringtrain::host
