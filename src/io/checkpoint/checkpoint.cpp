#include "ringtrain/io/checkpoint/checkpoint.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
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
    for (const char c : name) text += c == '\n' ? "\\n" : c == '\\' ? "\\\\" : std::string(1, c);
  }
  return text;
}

std::vector<std::string> class_names_in(std::string_view text) {
  if (text.empty()) return {};
  std::vector<std::string> names = split(text, '\n');
  for (std::string& name : names) {
    std::string plain;
    for (std::size_t i = 0; i < name.size(); ++i) {
      const bool escaped = name[i] == '\\' && i + 1 < name.size();
      plain += !escaped ? name[i] : name[++i] == 'n' ? '\n' : name[i];
    }
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
