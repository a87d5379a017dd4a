#include "io/checkpoint/checkpoint_index.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <set>

#include "ringtrain/base/error.hpp"
#include "ringtrain/base/hash.hpp"
#include "ringtrain/base/text.hpp"
#include "ringtrain/io/checkpoint/checkpoint_reader.hpp"

namespace ringtrain::io {
namespace {

static_assert(std::endian::native == std::endian::little, "the file is little-endian");

constexpr std::array<char, 8> magic = {'\x89', 'r', 't', 'c', 'k', 'p', '\r', '\n'};
// In files of version 1, the header ends before the lineage, and the index begins there.
constexpr std::uint32_t schema_version = 2, first_version = 1;
// O_DIRECT writes start behind the user block, at a multiple of any block size in use
constexpr std::uint64_t smallest_user_block = 4096;
constexpr std::uint64_t most_other_bytes = 16 << 20, most_other_bytes_per_tensor = 4096;

struct Header {
  std::array<char, 8> magic;
  std::uint32_t version;
  std::uint32_t user_block;
  std::uint64_t file_bytes;
  std::uint64_t index_bytes;
  std::uint64_t outside_hash;
  std::uint64_t index_hash;  // of the user block but for the two hashes, run id and lineage
  std::uint64_t run_hash;    // of the two: apart, because equal states may differ in them
  std::array<char, 40> run_id;
  std::array<char, 32> lineage;
};
static_assert(sizeof(Header) == header_bytes && offsetof(Header, index_hash) == 40);

// Of a file of that version.
std::size_t bytes_of_header(const Header& header) {
  return header.version == first_version ? offsetof(Header, lineage) : sizeof header;
}

std::uint64_t index_hash_of(const Header& header, std::span<const std::byte> user_block) {
  Hasher hasher;
  hasher.update(user_block.first(offsetof(Header, index_hash)));
  hasher.update(user_block.subspan(bytes_of_header(header)));
  return hasher.value();
}

std::uint64_t run_hash_of(const Header& header) {
  constexpr std::size_t first = offsetof(Header, run_id);
  return hash_bytes(
      std::as_bytes(std::span(&header, 1)).subspan(first, bytes_of_header(header) - first));
}

Header header_of(std::span<const std::byte> bytes) {
  Header header;
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.version == first_version) header.lineage = {};
  return header;
}

void check_version(const Header& header) {
  if (header.magic != magic)
    throw Damage(
        "not a ringtrain checkpoint (--init-from reads files of torch and safetensors too)");
  if (header.version != schema_version && header.version != first_version)
    throw Damage(fmt::format("format version {}; this build reads versions {} and {}",
                             header.version, first_version, schema_version));
}

void check_run(const Header& header) {
  if (header.run_hash != run_hash_of(header) || header.run_id.back() != '\0' ||
      header.lineage.back() != '\0')
    throw Damage("run id and lineage fail their hash");
  if (printable(header.run_id.data()) != header.run_id.data())
    throw Damage("the run id is not printable");
  if (!is_lineage(header.lineage.data()))
    throw Damage("the lineage is not of 16 hexadecimal digits");
}

void refuse_outside(const CheckpointIndex& index) {
  for (const StoredTensor& tensor : index.tensors)
    if (tensor.offset < index.user_block || tensor.offset > index.file_bytes ||
        tensor.bytes > index.file_bytes - tensor.offset)
      throw Damage(fmt::format("tensor {} lies outside of the file", tensor.info.name));
}

void refuse_equal_names(const CheckpointIndex& index) {
  std::set<std::string_view> names;
  for (const StoredTensor& tensor : index.tensors)
    if (!names.insert(tensor.info.name).second)
      throw Damage(fmt::format("tensor {} is there twice", tensor.info.name));
}

void refuse_overlaps(const CheckpointIndex& index) {
  std::uint64_t end = 0;
  for (const StoredTensor* tensor : in_file_order(index)) {
    if (tensor->offset < end)
      throw Damage(fmt::format("tensor {} overlaps another", tensor->info.name));
    end = tensor->offset + tensor->bytes;
  }
}

// What is in neither user block nor tensors is HDF5's own. Without a bound on it, a sparse file
// could keep the reader hashing for days.
void refuse_unexplained_bytes(const CheckpointIndex& index) {
  std::uint64_t others = index.file_bytes - index.user_block;
  for (const StoredTensor& tensor : index.tensors) others -= tensor.bytes;
  if (others > most_other_bytes + most_other_bytes_per_tensor * index.tensors.size())
    throw Damage(fmt::format("{} of its bytes belong to no tensor", others));
}

}  // namespace

std::vector<const StoredTensor*> in_file_order(const CheckpointIndex& index) {
  std::vector<const StoredTensor*> order;
  for (const StoredTensor& tensor : index.tensors)
    if (tensor.bytes > 0) order.push_back(&tensor);
  std::ranges::sort(order, {}, &StoredTensor::offset);
  return order;
}

std::uint64_t user_block_bytes(const CheckpointMetadata& metadata,
                               std::span<const TensorInfo> tensors) {
  for (const std::string& text :
       {metadata.config, metadata.optimizer, metadata.plans, metadata.input})
    if (text.size() > longest_text)
      throw Error(
          Exit::usage, "checkpoint index",
          fmt::format("a text of {} bytes; the format has room for {}", text.size(), longest_text));
  std::vector<StoredTensor> widest;
  for (const TensorInfo& info : tensors)
    widest.push_back({.info = info, .offset = std::numeric_limits<std::uint64_t>::max()});
  const std::uint64_t needed = header_bytes + index_json(metadata, widest).size();
  if (needed > largest_user_block || tensors.size() > most_tensors)
    throw Error(
        Exit::usage, "checkpoint index",
        fmt::format(
            "{} tensors and their metadata need {} bytes, the format has room for {} and {}",
            tensors.size(), needed, most_tensors, largest_user_block));
  return std::max(smallest_user_block, std::bit_ceil(needed));
}

std::vector<std::byte> encode(const CheckpointIndex& index) {
  const std::string text = index_json(index.metadata, index.tensors);
  expects(header_bytes + text.size() <= index.user_block && index.run_id.size() <= longest_run_id &&
              is_lineage(index.lineage),
          "encode: index, run id and lineage fit the user block");
  Header header{.magic = magic,
                .version = schema_version,
                .user_block = static_cast<std::uint32_t>(index.user_block),
                .file_bytes = index.file_bytes,
                .index_bytes = text.size(),
                .outside_hash = index.outside_hash,
                .index_hash = 0,
                .run_hash = 0,
                .run_id = {},
                .lineage = {}};
  std::ranges::copy(index.run_id, header.run_id.begin());
  std::ranges::copy(index.lineage, header.lineage.begin());
  header.run_hash = run_hash_of(header);

  std::vector<std::byte> block(index.user_block);
  std::memcpy(block.data() + header_bytes, text.data(), text.size());
  std::memcpy(block.data(), &header, sizeof header);
  header.index_hash = index_hash_of(header, block);
  std::memcpy(block.data(), &header, sizeof header);
  return block;
}

std::uint64_t checked_user_block(std::span<const std::byte> bytes, std::uint64_t file_bytes) {
  if (bytes.size() < header_bytes) throw Damage("shorter than a checkpoint's header");
  const Header header = header_of(bytes);
  check_version(header);
  if (header.file_bytes != file_bytes)
    throw Damage(fmt::format("{} bytes long instead of {}", file_bytes, header.file_bytes));
  if (!std::has_single_bit(header.user_block) || header.user_block < smallest_user_block ||
      header.user_block > largest_user_block || header.user_block > file_bytes)
    throw Damage("the header's user block size is impossible");
  return header.user_block;
}

bool is_lineage(std::string_view text) {
  constexpr std::size_t digits = 16;
  return text.empty() || (text.size() == digits &&
                          text.find_first_not_of("0123456789abcdef") == std::string_view::npos);
}

std::optional<std::string> lineage_in(std::span<const std::byte> header) try {
  if (header.size() < header_bytes) return std::nullopt;
  const Header read = header_of(header);
  check_version(read);
  check_run(read);
  return read.lineage.data();
} catch (const Damage&) {
  return std::nullopt;
}

bool begins_otherwise(const std::filesystem::path& path) {
  std::error_code failure;
  if (!std::filesystem::is_regular_file(path, failure)) return false;
  std::ifstream file(path, std::ios::binary);
  if (!file) return false;
  std::array<char, magic.size()> first{};
  file.read(first.data(), first.size());
  return !file.bad() && first != magic;
}

CheckpointIndex decode(std::span<const std::byte> user_block, std::uint64_t file_bytes) {
  const Header header = header_of(user_block);
  if (header.index_hash != index_hash_of(header, user_block))
    throw Damage("the index fails its hash");
  check_run(header);
  const auto text = user_block.subspan(bytes_of_header(header));
  if (header.index_bytes > text.size()) throw Damage("the index is longer than its block");
  IndexJson json = parse_index_json(
      {reinterpret_cast<const char*>(text.data()), static_cast<std::size_t>(header.index_bytes)});

  CheckpointIndex index{.metadata = std::move(json.metadata),
                        .run_id = header.run_id.data(),
                        .lineage = header.lineage.data(),
                        .tensors = std::move(json.tensors),
                        .user_block = header.user_block,
                        .file_bytes = file_bytes,
                        .outside_hash = header.outside_hash};
  refuse_outside(index);
  refuse_equal_names(index);
  refuse_overlaps(index);
  refuse_unexplained_bytes(index);
  return index;
}

}  // namespace ringtrain::io
