#include "unit/io/checkpoint/checkpoint_mutants.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>

#include "unit/io/checkpoint/checkpoint_bytes.hpp"
#include "unit/io/checkpoint/checkpoint_damage.hpp"

namespace ringtrain::test {
namespace {

using Json = nlohmann::json;
using Random = std::mt19937_64;

template <class List>
const auto& one_of(const List& list, Random& random) {
  return list[below(random, std::size(list))];
}

const std::string many(1500, '[');

// Every value in `json`.
void collect(Json& json, std::vector<Json*>& values) {
  values.push_back(&json);
  if (json.is_structured())
    for (Json& child : json) collect(child, values);
}

Json strange_value(Random& random) {
  static const std::array<Json, 24> values{0u,
                                           1u,
                                           -1,
                                           1u << 31,
                                           (1ull << 31) - 1,
                                           1ull << 32,
                                           1ull << 61,
                                           1ull << 62,
                                           1ull << 63,
                                           std::numeric_limits<std::uint64_t>::max(),
                                           std::numeric_limits<std::uint64_t>::max() - 3,
                                           0.5,
                                           1e300,
                                           nullptr,
                                           true,
                                           "",
                                           "text",
                                           "\x1b[2J\x07",
                                           std::string(3000, 'x'),
                                           Json::array(),
                                           Json::object(),
                                           Json::array({1ull << 33, 1ull << 33}),
                                           Json::array({0u, ~0ull}),
                                           Json(std::vector<unsigned>(40, 1))};
  return one_of(values, random);
}

std::string strange_name(const std::string& name, Random& random) {
  switch (below(random, 10)) {
    case 0:
      return "../" + name;
    case 1:
      return "/" + name;
    case 2:
      return name + "/";
    case 3:
      return "weights//x";
    case 4:
      return "weights/./x";
    case 5:
      return "weights/\x1b[31mred";
    case 6:
      return "weights/a b";
    case 7:
      return "weights/\xc3\xa9";
    case 8:
      return "weights/" + std::string(5000, 'n');
    default:
      return name + "\x01";
  }
}

void lie_in_value(Json& index, Random& random) {
  std::vector<Json*> values;
  collect(index, values);
  *one_of(values, random) = strange_value(random);
}

void lie_in_numbers(Json& index, Random& random) {
  std::vector<Json*> values;
  collect(index, values);
  std::erase_if(values, [](const Json* value) { return !value->is_number_integer(); });
  if (values.empty()) return;
  Json& chosen = *one_of(values, random);
  if (random() % 2 == 0)
    chosen = strange_value(random);
  else
    chosen = chosen.get<std::uint64_t>() + (random() % 2 == 0 ? 4 : -4ull);
}

Json* some_tensor(Json& index, Random& random) {
  if (!index.is_object() || !index.contains("tensors")) return nullptr;
  Json& tensors = index["tensors"];
  if (!tensors.is_array() || tensors.empty()) return nullptr;
  Json& row = tensors[below(random, tensors.size())];
  return row.is_object() ? &row : nullptr;
}

void lie_in_tensors(Json& index, Random& random) {
  Json *row = some_tensor(index, random), *other = some_tensor(index, random);
  if (row == nullptr || other == nullptr) return;
  switch (below(random, 6)) {
    case 0:
      (*row)["offset"] = (*other)["offset"];
      return;
    case 1:
      (*row)["name"] = (*other)["name"];
      return;
    case 2:
      (*row)["shape"] = (*other)["shape"];
      return;
    case 3:
      std::swap(*row, *other);
      return;
    case 4:
      index["tensors"].erase(below(random, index["tensors"].size()));
      return;
    default:
      if ((*row)["name"].is_string())
        (*row)["name"] = strange_name((*row)["name"].get<std::string>(), random);
  }
}

void lie_in_texts(Json& index, Random& random) {
  if (!index.is_object() || !index.contains("metadata") || !index["metadata"].is_object()) return;
  static const std::array<const char*, 4> names{"config", "optimizer", "plans", "model"};
  static const std::array<std::string, 8> texts{
      many,   "{\"a\":" + many, "{\"\\u001b[2J\":\"\\u0007\"}",  "{\"lr\":",
      "null", "[1,2,3]",        std::string(70'000, ' ') + "{}", "{\"a\":1,\"a\":2}"};
  index["metadata"][one_of(names, random)] = one_of(texts, random);
}

std::string lie_in_text(std::string text, Random& random) {
  static const std::array<std::string, 14> pieces{"\"step\":1,",
                                                  "\"name\":\"weights/x\",",
                                                  "[[[[[[[[[[",
                                                  "{\"a\":{\"a\":{\"a\":{\"a\":",
                                                  "]",
                                                  "}",
                                                  ",",
                                                  "-",
                                                  "1e999",
                                                  "99999999999999999999999",
                                                  "\\ud800",
                                                  "\xff",
                                                  std::string(1, '\0'),
                                                  many};
  const std::size_t at = below(random, text.size() + 1);
  switch (below(random, 4)) {
    case 0:
      return text.insert(at, one_of(pieces, random));
    case 1:
      return text.erase(at, 1 + below(random, 20));
    case 2:
      return text.substr(0, at);
    default:
      if (at < text.size())
        text[at] = "{}[]\",:0123456789-.eE \\untrfalse\x01\xff"[below(random, 33)];
      return text;
  }
}

std::string lie_in_header(std::string file, Random& random) {
  static const std::array<std::uint64_t, 10> values{
      0, 1, 96, 4096, 8192, 4 << 20, 1u << 31, 1ull << 62, 1ull << 63, ~0ull};
  static const std::array<std::size_t, 4> fields{at_file_bytes, at_index_bytes, at_outside_hash,
                                                 at_run_id};
  const std::uint64_t value = one_of(values, random);
  if (random() % 3 == 0)
    put(file, random() % 2 == 0 ? at_user_block : at_version, static_cast<std::uint32_t>(value));
  else
    put(file, one_of(fields, random), value);
  return with_header_hashes(std::move(file));
}

// As large as a file can be, and nearly nothing of it there.
Mutant huge(std::string file, Random& random) {
  static const std::array<std::uint64_t, 4> lengths{1ull << 26, 1ull << 30, 1ull << 40, 1ull << 43};
  const std::uint64_t length = one_of(lengths, random);
  Json index = Json::parse(index_of(file));
  Json& row = index["tensors"][below(random, index["tensors"].size())];
  const std::uint64_t offset = file.size() / 64 * 64;
  row["shape"] = {(length - offset) / sizeof(float)};
  row["offset"] = offset;
  file = with_index(std::move(file), index.dump());
  put(file, at_file_bytes, length);
  return {"huge", with_header_hashes(std::move(file)), length, true};
}

// As much to parse as fits: text that takes far more memory than it is long.
Mutant costly(const std::string& file, Random& random) {
  static const std::array<std::string, 7> values{
      "{}", "[]", "\"\"", "7", "[7]", "{\"a\":\"b\"}", "\"0123456789abcdef\""};
  const std::string& value = one_of(values, random);
  const bool keys = random() % 4 == 0;
  std::string list;
  for (int i = 0; list.size() < (4 << 20) - 400; ++i)
    list += (keys ? "\"" + std::to_string(i) + "\":" : "") + value + ",";
  list.back() = ' ';
  const std::string text = keys ? "{" + list + "}" : "[" + list + "]";
  return {"costly", with_index(file, random() % 2 == 0 ? text : "{\"tensors\":" + text + "}"), 0,
          true};
}

Mutant lied(std::string file, const std::string& other, Random& random) {
  if (below(random, 200) == 0) return costly(file, random);
  switch (below(random, 16)) {
    case 0:
      return {"header", lie_in_header(std::move(file), random), 0, true};
    case 1:
      return huge(std::move(file), random);
    case 2:
    case 3: {
      const auto& [name, damage] = one_of(all_damages(), random);
      std::string damaged = damage(file, other, random);
      if (damaged.size() < header_bytes) damaged = file;
      return {std::string(name) + ", hashes mended", with_all_hashes(std::move(damaged)), 0, true};
    }
    default: {
      std::string text = index_of(file);
      for (std::size_t lies = 1 + below(random, 2); lies > 0; --lies) text = lie(text, random);
      file = with_index(std::move(file), text);
      return {"index", random() % 2 == 0 ? with_all_hashes(file) : file, 0, true};
    }
  }
}

}  // namespace

std::string lie(const std::string& text, Random& random) {
  Json index = Json::parse(text, nullptr, false);
  if (index.is_discarded() || random() % 4 == 0) return lie_in_text(text, random);
  using Lie = void (*)(Json&, Random&);
  constexpr std::array<Lie, 4> lies{lie_in_value, lie_in_numbers, lie_in_tensors, lie_in_texts};
  one_of(lies, random)(index, random);
  return index.dump(-1, ' ', false, Json::error_handler_t::ignore);
}

Mutants::Mutants(std::vector<std::string> originals, std::uint64_t seed)
    : originals_(std::move(originals)), random_(seed) {}

Mutant Mutants::next() {
  for (;;) {
    const std::string &file = one_of(originals_, random_), &other = one_of(originals_, random_);
    Mutant mutant;
    if (random_() % 2 == 0) {
      mutant = lied(file, other, random_);
    } else {
      const auto& [name, damage] = one_of(all_damages(), random_);
      mutant = {name, damage(file, other, random_)};
    }
    if (std::ranges::find(originals_, mutant.bytes) != originals_.end()) continue;
    mutant.length = std::max<std::uint64_t>(mutant.length, mutant.bytes.size());
    return mutant;
  }
}

}  // namespace ringtrain::test
