#include <nlohmann/json.hpp>
#include <vector>

#include "io/weights/saved_bytes.hpp"

namespace ringtrain::io {
namespace {

constexpr std::uint64_t header_alignment = 64;  // safetensors asks for 8

// Data begin aligned for every type: numbers of 64 bits come first.
std::vector<const TensorToSave*> in_order(std::span<const TensorToSave> tensors) {
  std::vector<const TensorToSave*> order;
  for (const bool whole : {true, false})
    for (const TensorToSave& tensor : tensors)
      if (is_whole(tensor) == whole) order.push_back(&tensor);
  return order;
}

std::string header_of(std::span<const TensorToSave* const> tensors,
                      const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header{{"__metadata__", metadata}};
  std::uint64_t at = 0;
  for (const TensorToSave* tensor : tensors) {
    const std::uint64_t end = at + saved_size(*tensor);
    header[tensor->info.name] = {{"dtype", is_whole(*tensor) ? "I64" : "F32"},
                                 {"shape", tensor->info.shape},
                                 {"data_offsets", {at, end}}};
    at = end;
  }
  std::string text = header.dump();
  const std::uint64_t behind = (sizeof(std::uint64_t) + text.size()) % header_alignment;
  if (behind > 0) text.append(header_alignment - behind, ' ');
  return text;
}

}  // namespace

void write_safetensors(std::ostream& out, std::span<const TensorToSave> tensors,
                       const std::map<std::string, std::string>& metadata) {
  const auto order = in_order(tensors);
  const std::string header = header_of(order, metadata);
  const std::uint64_t length = header.size();
  out.write(reinterpret_cast<const char*>(&length), sizeof length);
  out.write(header.data(), static_cast<std::streamsize>(header.size()));
  for (const TensorToSave* tensor : order) {
    const std::vector<char> bytes = saved_bytes(*tensor);
    out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }
}

}  // namespace ringtrain::io
