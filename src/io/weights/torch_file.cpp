#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <optional>

#include "io/weights/pickle.hpp"
#include "io/weights/zip.hpp"
#include "ringtrain/base/text.hpp"

namespace ringtrain::io {
namespace {

using Kind = PickleValue::Kind;

/// Where the bytes of a storage are, by its key.
struct StoragePlace {
  Part bytes;
  std::optional<std::uint32_t> crc = std::nullopt;
};
using StoragePlaces = std::map<std::string, StoragePlace, std::less<>>;

bool is_tensor(const PickleValue& value) { return value.kind == Kind::tensor; }

bool has_tensors(const Pickle& pickle, const PickleValue& dictionary) {
  for (std::size_t i = 1; i < dictionary.items.size(); i += 2)
    if (is_tensor(pickle[dictionary.items[i]])) return true;
  return false;
}

/// A dictionary of tensors, and what leads to it.
struct Section {
  const PickleValue* dictionary;
  std::string name;
};

// What training scripts wrap a state dictionary in. Moving averages come first, as those were
// evaluated.
constexpr std::array sections{"state_dict_ema", "model_ema",        "ema_state_dict",
                              "state_dict",     "model_state_dict", "model"};

std::optional<Section> section_in(const Pickle& pickle, const Section& outer) {
  if (outer.dictionary->kind != Kind::dictionary) return std::nullopt;
  for (const char* name : sections) {
    const PickleValue* inner = pickle.find(*outer.dictionary, name);
    if (inner == nullptr || inner->kind != Kind::dictionary || inner->items.empty()) continue;
    return Section{inner, outer.name.empty() ? name : outer.name + "." + name};
  }
  return std::nullopt;
}

Section find_section(const Pickle& pickle) {
  Section found{&pickle.top(), ""};
  for (int depth = 0; depth < 3; ++depth)
    if (auto inner = section_in(pickle, found)) found = std::move(*inner);
  if (found.dictionary->kind == Kind::dictionary && has_tensors(pickle, *found.dictionary))
    return found;
  throw BadWeights(
      Exit::incompatible_checkpoint,
      "holds no state dictionary, at its top or as state_dict or model: save model.state_dict()");
}

StoredType type_of(const Pickle& pickle, const PickleValue& storage) {
  return static_cast<StoredType>(pickle[storage.items[0]].number);
}

// Bytes of a storage that says how many numbers it has.
std::uint64_t storage_bytes(const Pickle& pickle, const PickleValue& storage) {
  const std::uint64_t count = pickle.count(storage.items[2]),
                      each = bytes_of(type_of(pickle, storage));
  if (count > UINT64_MAX / each) throw BadWeights("has a storage of more than 64 bits of bytes");
  return count * each;
}

StoredWeights stored(const Pickle& pickle, std::string_view name, const PickleValue& tensor,
                     const StoragePlaces& places) {
  const PickleValue& storage = pickle[tensor.items[0]];
  if (storage.kind != Kind::storage)
    throw BadWeights(fmt::format("tensor {} has no storage", brief(name, 100)));
  const auto place = places.find(pickle[storage.items[1]].text);
  if (place == places.end() || place->second.bytes.size != storage_bytes(pickle, storage))
    throw BadWeights(
        fmt::format("the storage of tensor {} is missing or of another size", brief(name, 100)));
  StoredWeights made{{std::string(name), pickle.counts(tensor.items[2])},
                     type_of(pickle, storage),
                     place->second.bytes,
                     pickle.count(tensor.items[1]),
                     pickle.counts(tensor.items[3]),
                     place->second.crc};
  expect_within_storage(made);
  return made;
}

WeightsIndex index_of(const Pickle& pickle, const StoragePlaces& places, std::string format) {
  const Section section = find_section(pickle);
  WeightsIndex index{std::move(format), section.name, {}};
  const auto& items = section.dictionary->items;
  for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
    const PickleValue &key = pickle[items[i]], &value = pickle[items[i + 1]];
    if (!is_tensor(value) || key.kind != Kind::text) continue;
    if (index.tensors.size() == most_weights) throw BadWeights("has too many tensors");
    index.tensors.push_back(stored(pickle, key.text, value, places));
  }
  return index;
}

// "NAME/data.pkl"; NAME is anything.
const ZipEntry& find_pickle(const std::vector<ZipEntry>& entries) {
  for (const ZipEntry& entry : entries)
    if (entry.name.ends_with("/data.pkl")) return entry;
  throw BadWeights(Exit::incompatible_checkpoint,
                   "is a zip file without data.pkl: not torch.save()'s");
}

void expect_little_endian(ByteSource& bytes, const ZipEntry& entry) {
  expect_plain(entry);
  const auto text = bytes.at({entry.bytes.offset, std::min<std::uint64_t>(entry.bytes.size, 8)});
  if (std::string_view(reinterpret_cast<const char*>(text.data()), text.size()) != "little")
    throw BadWeights(Exit::incompatible_checkpoint, "is of a big-endian machine");
}

// The magic number's pickle: 2^77 or so, which ends after it.
constexpr std::array<std::uint8_t, 11> legacy_magic = {0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20,
                                                       0x6a, 0xa8, 0x50, 0x19, '.'};

std::optional<std::size_t> legacy_begin(std::span<const std::uint8_t> head) {
  const auto found = std::ranges::search(head, legacy_magic);
  if (head.empty() || head[0] != 0x80 || found.empty()) return std::nullopt;
  return found.end() - head.begin();
}

/// The pickles of a legacy file, one after the other.
class LegacyPickles {
 public:
  LegacyPickles(std::span<const std::uint8_t> bytes, std::size_t begin)
      : bytes_(bytes), at_(begin) {}
  Pickle next() {
    Pickle pickle = read_pickle(bytes_.subspan(at_));
    at_ += pickle.bytes;
    return pickle;
  }
  std::size_t at() const { return at_; }

 private:
  std::span<const std::uint8_t> bytes_;
  std::size_t at_;
};

void expect_usual_system(const Pickle& version, const Pickle& system) {
  constexpr std::int64_t protocol_version = 1001;
  if (version.top().kind != Kind::integer || version.top().number != protocol_version)
    throw BadWeights(Exit::incompatible_checkpoint,
                     "is of another protocol than torch.save()'s 1001");
  const PickleValue* little = system.find(system.top(), "little_endian");
  if (little == nullptr || little->number != 1)
    throw BadWeights(Exit::incompatible_checkpoint, "is of a big-endian machine");
}

/// Bytes of a number of each storage, by its key.
std::map<std::string_view, std::uint64_t> widths_of(const Pickle& state) {
  std::map<std::string_view, std::uint64_t> widths;
  for (const PickleValue& value : state.values)
    if (value.kind == Kind::storage)
      widths.emplace(state[value.items[1]].text, bytes_of(type_of(state, value)));
  return widths;
}

// For each key its count of numbers, then these.
StoragePlaces legacy_places(ByteSource& bytes, const Pickle& state, const Pickle& keys,
                            std::uint64_t at) {
  const auto widths = widths_of(state);
  StoragePlaces places;
  for (const PickleId id : keys.top().items) {
    const auto width = widths.find(keys[id].text);
    if (width == widths.end()) throw BadWeights("has a storage that no tensor is of");
    std::uint64_t count = 0;
    if (bytes.size() - at < sizeof count) throw BadWeights("is cut short");
    std::memcpy(&count, bytes.at({at, sizeof count}).data(), sizeof count);
    at += sizeof count;
    if (count > (bytes.size() - at) / width->second) throw BadWeights("is cut short");
    places.emplace(keys[id].text, StoragePlace{{at, count * width->second}});
    at += count * width->second;
  }
  return places;
}

}  // namespace

bool begins_weights(std::span<const std::uint8_t> head, std::uint64_t file_bytes) {
  constexpr std::array<std::uint8_t, 4> zip = {'P', 'K', 3, 4};
  const auto first = head.first(std::min(head.size(), zip.size()));
  if (std::ranges::equal(first, zip) || legacy_begin(head)) return true;
  std::uint64_t length = 0;
  if (head.size() < sizeof length + 2) return false;
  std::memcpy(&length, head.data(), sizeof length);
  return length <= file_bytes - sizeof length && head[sizeof length] == '{';
}

WeightsIndex read_torch_zip(ByteSource& bytes) {
  const std::vector<ZipEntry> entries = read_zip(bytes);
  const ZipEntry& found = find_pickle(entries);
  expect_plain(found);
  const std::string home = found.name.substr(0, found.name.size() - std::strlen("data.pkl"));
  StoragePlaces places;
  for (const ZipEntry& entry : entries) {
    if (entry.name == home + "byteorder") expect_little_endian(bytes, entry);
    if (!entry.name.starts_with(home + "data/")) continue;
    expect_plain(entry);
    places.emplace(entry.name.substr(home.size() + 5), StoragePlace{entry.bytes, entry.crc});
  }
  if (found.bytes.size > most_weights_index) throw BadWeights("its pickle is larger than 16 MiB");
  const auto window = bytes.at(found.bytes);
  const std::vector<std::uint8_t> text(window.begin(), window.end());
  if (crc32(text) != found.crc) throw BadWeights("its pickle does not fit its CRC-32");
  return index_of(read_pickle(text), places, "torch's zip file");
}

WeightsIndex read_torch_legacy(ByteSource& bytes) {
  const auto window = bytes.at({0, std::min(bytes.size(), most_weights_index)});
  const std::vector<std::uint8_t> text(window.begin(), window.end());
  const std::size_t head = std::min(text.size(), weights_head_bytes);
  LegacyPickles pickles(text, *legacy_begin(std::span(text).first(head)));
  const Pickle version = pickles.next(), system = pickles.next();
  expect_usual_system(version, system);
  const Pickle state = pickles.next(), keys = pickles.next();
  return index_of(state, legacy_places(bytes, state, keys, pickles.at()), "torch's legacy file");
}

std::optional<WeightsIndex> read_weights_index(ByteSource& bytes) {
  const auto window = bytes.at({0, std::min<std::uint64_t>(bytes.size(), weights_head_bytes)});
  const std::vector<std::uint8_t> head(window.begin(), window.end());
  if (!begins_weights(head, bytes.size())) return std::nullopt;
  if (head[0] == 'P' && head[1] == 'K') return read_torch_zip(bytes);
  if (legacy_begin(head)) return read_torch_legacy(bytes);
  return read_safetensors(bytes);
}

}  // namespace ringtrain::io
