#pragma once
#include <fmt/core.h>

#include <string>
#include <string_view>

namespace ringtrain::metrics {

/// `text` for HTML, in which it means nothing but itself.
inline std::string escaped(std::string_view text) {
  std::string safe;
  for (const char c : text) {
    const std::string_view special = "&<>\"'";
    if (special.find(c) == special.npos)
      safe += c;
    else
      safe += fmt::format("&#{};", int(c));
  }
  return safe;
}

}  // namespace ringtrain::metrics
