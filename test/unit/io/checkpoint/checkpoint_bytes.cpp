#include "unit/io/checkpoint/checkpoint_bytes.hpp"

#include <algorithm>
#include <bit>
#include <map>
#include <nlohmann/json.hpp>

#include "ringtrain/base/hash.hpp"

namespace ringtrain::test {
namespace {

using Json = nlohmann::json;
constexpr std::uint32_t largest_user_block = 4 << 20;

// Where the index begins.
std::size_t head_of(const std::string& file) {
  return get<std::uint32_t>(file, at_version) == 1 ? at_lineage : header_bytes;
}

std::size_t user_block_of(const std::string& file) {
  return std::min<std::size_t>(get<std::uint32_t>(file, at_user_block), file.size());
}

std::uint64_t number(const Json& row, const char* name) {
  const auto found = row.is_object() ? row.find(name) : row.end();
  return row.is_object() && found != row.end() && found->is_number_unsigned()
             ? found->get<std::uint64_t>()
             : ~0ull;
}

std::uint64_t tensor_bytes(const Json& row) {
  std::uint64_t count = sizeof(float);
  if (!row.is_object() || !row.contains("shape") || !row["shape"].is_array()) return ~0ull;
  for (const Json& size : row["shape"])
    if (!size.is_number_unsigned() ||
        __builtin_mul_overflow(count, size.get<std::uint64_t>(), &count))
      return ~0ull;
  return count;
}

bool lies_in(const std::string& file, std::uint64_t offset, std::uint64_t bytes) {
  return offset <= file.size() && bytes <= file.size() - offset;
}

/// Ends of the tensors by their beginnings.
std::map<std::uint64_t, std::uint64_t> mend_tensors(const std::string& file, Json& rows) {
  std::map<std::uint64_t, std::uint64_t> ranges;
  for (Json& row : rows) {
    const std::uint64_t offset = number(row, "offset"), bytes = tensor_bytes(row);
    if (!lies_in(file, offset, bytes)) continue;
    row["xxh64"] = hex(hash_text({file.data() + offset, bytes}));
    if (bytes > 0) ranges[offset] = offset + bytes;
  }
  return ranges;
}

std::uint64_t hash_outside(const std::string& file,
                           const std::map<std::uint64_t, std::uint64_t>& tensors) {
  std::string outside;
  std::uint64_t position = user_block_of(file);
  for (const auto& [begin, end] : tensors) {
    if (begin > position) outside += file.substr(position, begin - position);
    position = std::max(position, end);
  }
  return hash_text(outside += file.substr(std::min<std::uint64_t>(position, file.size())));
}

}  // namespace

std::string as_version_1(std::string file) {
  const std::string text = index_of(file);
  put<std::uint32_t>(file, at_version, 1);
  return with_index(std::move(file), text);
}

std::string index_of(const std::string& file) {
  if (file.size() < header_bytes) return "";
  const std::size_t room = std::max(user_block_of(file), head_of(file)) - head_of(file);
  return file.substr(head_of(file),
                     std::min<std::uint64_t>(get<std::uint64_t>(file, at_index_bytes), room));
}

std::string with_header_hashes(std::string file) {
  const std::size_t head = head_of(file), block = std::max(user_block_of(file), head);
  put(file, at_index_hash,
      hash_text(file.substr(0, at_index_hash) + file.substr(head, block - head)));
  put(file, at_run_hash, hash_text(file.substr(at_run_id, head - at_run_id)));
  return file;
}

std::string with_index(std::string file, const std::string& text) {
  const std::size_t head = head_of(file), before = std::max(user_block_of(file), head);
  std::size_t block = std::max(before, std::bit_ceil(head + text.size()));
  block = std::min<std::size_t>(block, largest_user_block);
  std::string padded = text.substr(0, block - head);
  padded.resize(block - head);
  file.replace(head, before - head, padded);
  put(file, at_user_block, static_cast<std::uint32_t>(block));
  put<std::uint64_t>(file, at_file_bytes, file.size());
  put<std::uint64_t>(file, at_index_bytes, std::min(text.size(), block - head));
  return with_header_hashes(std::move(file));
}

std::string with_all_hashes(std::string file) {
  Json index = Json::parse(index_of(file), nullptr, false);
  if (!index.is_object() || !index.contains("tensors") || !index["tensors"].is_array())
    return with_header_hashes(std::move(file));
  const auto ranges = mend_tensors(file, index["tensors"]);
  put(file, at_outside_hash, hash_outside(file, ranges));
  return with_index(std::move(file), index.dump(-1, ' ', false, Json::error_handler_t::replace));
}

}  // namespace ringtrain::test
