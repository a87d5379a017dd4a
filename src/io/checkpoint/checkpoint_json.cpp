#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <set>

#include "io/checkpoint/checkpoint_index.hpp"
#include "ringtrain/base/error.hpp"
#include "ringtrain/base/hash.hpp"
#include "ringtrain/base/text.hpp"

namespace ringtrain::io {
namespace {

using Json = nlohmann::json;

// As count() has it; the most tensors that are allowed need less. Parsing and letting go take up to
// three times as much.
constexpr std::size_t most_json_memory = 20 << 20;
constexpr std::size_t deepest_json = 8;
constexpr std::size_t longest_name = 1024, most_dimensions = 32;  // HDF5 has no more dimensions

std::string text_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// What a save can do without must not keep it from its place in the user block.
void add_description(Json& json, const CheckpointMetadata& m) {
  std::size_t room = most_description;
  for (const auto& [name, text] : {std::pair{"input", &m.input}, std::pair{"network", &m.network},
                                   std::pair{"class_names", &m.class_names}}) {
    const std::size_t bytes = text->size() > room ? text->size() : text_of(*text).size();
    if (text->empty() || bytes > room) continue;
    room -= bytes;
    json[name] = *text;
  }
}

Json to_json(const CheckpointMetadata& m) {
  Json json = {{"step", m.step},
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
  if (!m.unreadable.empty()) json["unreadable"] = m.unreadable;
  if (!m.best.empty()) json["best"] = m.best;
  if (m.is_best) json["is_best"] = 1;
  add_description(json, m);
  return json;
}

Json to_json(const StoredTensor& tensor) {
  return {{"name", tensor.info.name},
          {"shape", tensor.info.shape},
          {"offset", tensor.offset},
          {"xxh64", hex(tensor.hash)}};
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

std::string text_if_in(const Json& object, const char* name) {
  return object.contains(name) ? text_in(object, name) : "";
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
          .plans = text_in(object, "plans"),
          .unreadable = object.contains("unreadable") ? numbers_in(object, "unreadable")
                                                      : std::vector<std::uint64_t>{},
          .best = text_if_in(object, "best"),
          .is_best = object.contains("is_best"),
          .input = text_if_in(object, "input"),
          .network = text_if_in(object, "network"),
          .class_names = text_if_in(object, "class_names")};
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

StoredTensor tensor_from(const Json& row) {
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
  return tensor;
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
  for (const std::string& text :
       {metadata.config, metadata.optimizer, metadata.plans, metadata.input, metadata.best}) {
    if (text.size() > longest_text) throw Damage("a text in the index is too long");
    if (!text.empty()) check_json(text);
  }
  if (metadata.model.size() > longest_name) throw Damage("the model's name is too long");
}

}  // namespace

std::string index_json(const CheckpointMetadata& metadata, std::span<const StoredTensor> tensors) {
  Json table = Json::array();
  for (const StoredTensor& tensor : tensors) table.push_back(to_json(tensor));
  const Json index = {{"metadata", to_json(metadata)}, {"tensors", std::move(table)}};
  return text_of(index);
}

IndexJson parse_index_json(std::string_view text) {
  const Json json = parse(text);
  IndexJson index{metadata_from(member(json, "metadata")), {}};
  check_texts(index.metadata);
  const Json& table = member(json, "tensors");
  if (table.size() > most_tensors)
    throw Damage(fmt::format("{} tensors are more than {}", table.size(), most_tensors));
  for (const Json& row : table) index.tensors.push_back(tensor_from(row));
  return index;
}

std::string to_json_text(const CheckpointMetadata& metadata) { return text_of(to_json(metadata)); }

CheckpointMetadata metadata_from_json_text(std::string_view text) {
  return metadata_from(parse(text));
}

}  // namespace ringtrain::io
