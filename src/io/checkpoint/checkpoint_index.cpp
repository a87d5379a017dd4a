#include "io/checkpoint/checkpoint_index.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "ringtrain/base/error.hpp"
#include "ringtrain/base/hash.hpp"
#include "ringtrain/base/text.hpp"

namespace ringtrain::io {
namespace {

using Json = nlohmann::json;
static_assert(std::endian::native == std::endian::little, "the file is little-endian");

constexpr std::array<char, 8> magic = {'\x89', 'r', 't', 'c', 'k', 'p', '\r', '\n'};
// In files of version 1, the header ends before the lineage, and the index begins there.
constexpr std::uint32_t schema_version = 2, first_version = 1;
// O_DIRECT writes start behind the user block, at a multiple of any block size in use
constexpr std::uint64_t smallest_user_block = 4096;
constexpr std::uint64_t most_other_bytes = 16 << 20, most_other_bytes_per_tensor = 4096;
// As count() has it; the most tensors that are allowed need less. Parsing and letting go take up to
// three times as much.
constexpr std::size_t most_json_memory = 20 << 20;
constexpr std::size_t deepest_json = 8;
constexpr std::size_t longest_name = 1024, most_dimensions = 32;  // HDF5 has no more dimensions

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
  if (header.magic != magic) throw Damage("not a ringtrain checkpoint");
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

Json to_json(const CheckpointMetadata& m) {
  return {{"step", m.step},
          {"epoch", m.epoch},
          {"position", m.position},
          {"seed", m.seed},
          {"world_size", m.world_size},
          {"global_batch", m.global_batch},
          {"model", m.model},
          {"model_hash", hex(m.model_hash)},
          {"config", m.config},
          {"optimizer", m.optimizer},
          {"buckets", m.buckets},
          {"plans", m.plans}};
}

Json to_json(const StoredTensor& tensor) {
  return {{"name", tensor.info.name},
          {"shape", tensor.info.shape},
          {"offset", tensor.offset},
          {"xxh64", hex(tensor.hash)}};
}

std::string index_text(const CheckpointMetadata& metadata, std::span<const StoredTensor> tensors) {
  Json table = Json::array();
  for (const StoredTensor& tensor : tensors) table.push_back(to_json(tensor));
  const Json index = {{"metadata", to_json(metadata)}, {"tensors", std::move(table)}};
  return index.dump(-1, ' ', false, Json::error_handler_t::replace);
}

const Json& member(const Json& object, const char* name) {
  const auto found = object.is_object() ? object.find(name) : object.end();
  if (!object.is_object() || found == object.end())
    throw Damage(fmt::format("the index lacks '{}'", name));
  return *found;
}

// get<>() would turn a negative or fractional number into some unsigned one.
std::uint64_t number(const Json& value, const char* name) {
  if (!value.is_number_unsigned())
    throw Damage(fmt::format("'{}' in the index is no unsigned integer", name));
  return value.get<std::uint64_t>();
}

std::uint64_t number_in(const Json& object, const char* name) {
  return number(member(object, name), name);
}

std::string text_in(const Json& object, const char* name) {
  const Json& value = member(object, name);
  if (!value.is_string()) throw Damage(fmt::format("'{}' in the index is no text", name));
  return value.get<std::string>();
}

std::uint64_t hash_in(const Json& object, const char* name) {
  const std::string digits = text_in(object, name);
  std::uint64_t value = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  if (hex(value) != digits) throw Damage(fmt::format("'{}' in the index is no hash", name));
  return value;
}

std::vector<std::uint64_t> numbers_in(const Json& object, const char* name) {
  const Json& list = member(object, name);
  if (!list.is_array()) throw Damage(fmt::format("'{}' in the index is no list", name));
  std::vector<std::uint64_t> values;
  for (const Json& value : list) values.push_back(number(value, name));
  return values;
}

CheckpointMetadata metadata_from(const Json& object) {
  return {.step = number_in(object, "step"),
          .epoch = number_in(object, "epoch"),
          .position = number_in(object, "position"),
          .seed = number_in(object, "seed"),
          .world_size = number_in(object, "world_size"),
          .global_batch = number_in(object, "global_batch"),
          .model = text_in(object, "model"),
          .model_hash = hash_in(object, "model_hash"),
          .config = text_in(object, "config"),
          .optimizer = text_in(object, "optimizer"),
          .buckets = numbers_in(object, "buckets"),
          .plans = text_in(object, "plans")};
}

bool is_printable(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c > ' ' && c <= '~'; });
}

void check_name(const std::string& name) {
  if (name.empty() || !is_printable(name)) throw Damage("a tensor's name is not printable");
  if (name.size() > longest_name) throw Damage("a tensor's name is too long");
  for (const std::string& part : split(name, '/'))
    if (part.empty() || part == "." || part == "..")
      throw Damage(fmt::format("tensor {} has a name that is no path", name));
}

StoredTensor tensor_from(const Json& row, std::uint64_t user_block, std::uint64_t file_bytes) {
  StoredTensor tensor{.info = {text_in(row, "name"), numbers_in(row, "shape")},
                      .offset = number_in(row, "offset"),
                      .hash = hash_in(row, "xxh64")};
  const std::string& name = tensor.info.name;
  check_name(name);
  if (tensor.info.shape.size() > most_dimensions)
    throw Damage(fmt::format("tensor {} has more than {} dimensions", name, most_dimensions));
  try {
    tensor.bytes = element_count(tensor.info) * sizeof(float);
  } catch (const Error&) {
    throw Damage(fmt::format("the shape of tensor {} overflows", name));
  }
  if (tensor.offset < user_block || tensor.offset > file_bytes ||
      tensor.bytes > file_bytes - tensor.offset)
    throw Damage(fmt::format("tensor {} lies outside of the file", name));
  return tensor;
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

/// Reads JSON text without keeping it, and throws Damage for one that would be costly to keep or
/// that has a key twice.
class Bounds : public nlohmann::json_sax<Json> {
 public:
  bool null() override { return count(scalar_cost); }
  bool boolean(bool) override { return count(scalar_cost); }
  bool number_integer(number_integer_t) override { return count(scalar_cost); }
  bool number_unsigned(number_unsigned_t) override { return count(scalar_cost); }
  bool number_float(number_float_t, const string_t&) override { return count(scalar_cost); }
  bool string(string_t& text) override { return count(string_cost + text.size()); }
  bool binary(binary_t&) override { return count(scalar_cost); }
  bool key(string_t& name) override {
    if (!keys_.back().insert(name).second)
      throw Damage(fmt::format("the index has '{}' twice in one object", brief(name)));
    return count(key_cost + name.size());
  }
  bool start_object(std::size_t) override { return enter(); }
  bool start_array(std::size_t) override { return enter(); }
  bool end_object() override { return leave(); }
  bool end_array() override { return leave(); }
  bool parse_error(std::size_t, const std::string&, const Json::exception& failure) override {
    throw Damage(fmt::format("the index is no JSON ({})", brief(failure.what())));
  }

 private:
  // What a value takes of memory, about: its place in a growing list, nodes, the text's own block.
  static constexpr std::size_t scalar_cost = 24, string_cost = 72, key_cost = 96, list_cost = 96;

  bool count(std::size_t bytes) {
    bytes_ += bytes;
    if (bytes_ > most_json_memory) throw Damage("the index has too many values");
    return true;
  }
  bool enter() {
    keys_.emplace_back();
    if (keys_.size() > deepest_json) throw Damage("the index is nested too deeply");
    return count(list_cost);
  }
  bool leave() {
    keys_.pop_back();
    return true;
  }

  std::size_t bytes_ = 0;
  std::vector<std::set<string_t>> keys_;  // of each list or object around
};

void check_json(std::string_view text) {
  Bounds bounds;
  Json::sax_parse(text, &bounds);
}

Json parse(std::string_view text) {
  try {
    check_json(text);
    return Json::parse(text);
  } catch (const Json::exception& failure) {
    throw Damage(fmt::format("the index is no JSON ({})", brief(failure.what())));
  }
}

// Others parse and show these texts: they are not to be longer, deeper or stranger than ours.
void check_texts(const CheckpointMetadata& metadata) {
  for (const std::string& text : {metadata.config, metadata.optimizer, metadata.plans}) {
    if (text.size() > longest_text) throw Damage("a text in the index is too long");
    if (!text.empty()) check_json(text);
  }
  if (metadata.model.size() > longest_name) throw Damage("the model's name is too long");
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
  for (const std::string& text : {metadata.config, metadata.optimizer, metadata.plans})
    if (text.size() > longest_text)
      throw Error(
          Exit::usage, "checkpoint index",
          fmt::format("a text of {} bytes; the format has room for {}", text.size(), longest_text));
  std::vector<StoredTensor> widest;
  for (const TensorInfo& info : tensors)
    widest.push_back({.info = info, .offset = std::numeric_limits<std::uint64_t>::max()});
  const std::uint64_t needed = header_bytes + index_text(metadata, widest).size();
  if (needed > largest_user_block || tensors.size() > most_tensors)
    throw Error(
        Exit::usage, "checkpoint index",
        fmt::format(
            "{} tensors and their metadata need {} bytes, the format has room for {} and {}",
            tensors.size(), needed, most_tensors, largest_user_block));
  return std::max(smallest_user_block, std::bit_ceil(needed));
}

std::vector<std::byte> encode(const CheckpointIndex& index) {
  const std::string text = index_text(index.metadata, index.tensors);
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

CheckpointIndex decode(std::span<const std::byte> user_block, std::uint64_t file_bytes) {
  const Header header = header_of(user_block);
  if (header.index_hash != index_hash_of(header, user_block))
    throw Damage("the index fails its hash");
  check_run(header);
  const auto text = user_block.subspan(bytes_of_header(header));
  if (header.index_bytes > text.size()) throw Damage("the index is longer than its block");
  const Json json = parse(
      {reinterpret_cast<const char*>(text.data()), static_cast<std::size_t>(header.index_bytes)});

  CheckpointIndex index{.metadata = metadata_from(member(json, "metadata")),
                        .run_id = header.run_id.data(),
                        .lineage = header.lineage.data(),
                        .tensors = {},
                        .user_block = header.user_block,
                        .file_bytes = file_bytes,
                        .outside_hash = header.outside_hash};
  check_texts(index.metadata);
  for (const Json& row : member(json, "tensors"))
    index.tensors.push_back(tensor_from(row, header.user_block, file_bytes));
  refuse_equal_names(index);
  refuse_overlaps(index);
  refuse_unexplained_bytes(index);
  return index;
}

std::string to_json_text(const CheckpointMetadata& metadata) {
  return to_json(metadata).dump(-1, ' ', false, Json::error_handler_t::replace);
}

CheckpointMetadata metadata_from_json_text(std::string_view text) {
  return metadata_from(parse(text));
}

}  // namespace ringtrain::io
