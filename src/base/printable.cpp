#include "ringtrain/base/printable.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstddef>

namespace ringtrain {
namespace {

/// Bytes of the UTF-8 sequence that `lead` begins; 0 when none begins so.
std::size_t sequence_length(unsigned char lead) {
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead < 0xE0) return 2;
  if (lead >= 0xE0 && lead < 0xF0) return 3;
  if (lead >= 0xF0 && lead < 0xF5) return 4;
  return 0;
}

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

}  // namespace ringtrain
