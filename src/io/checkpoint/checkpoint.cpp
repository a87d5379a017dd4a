#include "ringtrain/io/checkpoint/checkpoint.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <limits>

#include "ringtrain/base/error.hpp"
#include "ringtrain/base/hash.hpp"
#include "ringtrain/base/text.hpp"

namespace ringtrain::io {

std::uint64_t element_count(const TensorInfo& tensor) {
  constexpr auto most = std::numeric_limits<std::uint64_t>::max() / sizeof(float);
  std::uint64_t count = 1;
  for (const std::uint64_t size : tensor.shape) {
    if (size != 0 && count > most / size)
      throw Error("shape of tensor", describe(tensor) + " does not fit 64 bits");
    count *= size;
  }
  return count;
}

std::string describe(const TensorInfo& tensor) {
  return fmt::format("{} [{}]", tensor.name, fmt::join(tensor.shape, ","));
}

std::string class_names_text(std::span<const std::string> names) {
  std::string text;
  for (const std::string& name : names) {
    if (&name != names.data()) text += '\n';
    const bool whole = is_utf8(name);
    for (const char c : name) {
      const auto byte = static_cast<unsigned char>(c);
      text += c == '\n'              ? "\\n"
              : c == '\\'            ? "\\\\"
              : whole || byte < 0x80 ? std::string(1, c)
                                     : fmt::format("\\x{:02x}", byte);
    }
  }
  return text;
}

namespace {

// Of a name as class_names_text() has it.
char take_character(std::string_view& text) {
  const auto taken = [&](char c, std::size_t length) {
    text.remove_prefix(length);
    return c;
  };
  if (text[0] != '\\' || text.size() == 1) return taken(text[0], 1);
  unsigned char byte = 0;
  const char* const end = text.data() + std::min<std::size_t>(text.size(), 4);
  if (text[1] == 'x' && text.size() >= 4 &&
      std::from_chars(text.data() + 2, end, byte, 16).ptr == end)
    return taken(static_cast<char>(byte), 4);
  return taken(text[1] == 'n' ? '\n' : text[1], 2);
}

}  // namespace

std::vector<std::string> class_names_in(std::string_view text) {
  if (text.empty()) return {};
  std::vector<std::string> names = split(text, '\n');
  for (std::string& name : names) {
    std::string plain;
    for (std::string_view rest = name; !rest.empty();) plain += take_character(rest);
    name = std::move(plain);
  }
  return names;
}

std::uint64_t state_hash(const CheckpointMetadata& metadata, std::span<const TensorInfo> tensors,
                         std::span<const std::uint64_t> hashes) {
  expects(tensors.size() == hashes.size(), "state_hash: one hash a tensor");
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < tensors.size(); ++i)
    lines.push_back(fmt::format("{} {}", describe(tensors[i]), hex(hashes[i])));
  std::ranges::sort(lines);
  return hash_text(
      fmt::format("model {} {}\nstep {}\nepoch {}\nposition {}\nseed {}\noptimizer {}\n{}\n",
                  metadata.model, hex(metadata.model_hash), metadata.step, metadata.epoch,
                  metadata.position, metadata.seed, metadata.optimizer, fmt::join(lines, "\n")));
}

}  // namespace ringtrain::io
