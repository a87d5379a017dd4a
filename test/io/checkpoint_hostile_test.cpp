// Files whose hashes fit but whose index lies: whoever can write a checkpoint can also hash it.
#include <catch2/catch.hpp>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>

#include "io/checkpoint_fixture.hpp"
#include "ringtrain/base/error.hpp"
#include "ringtrain/base/hash.hpp"

using namespace ringtrain;
using Catch::Matchers::Contains;
using Json = nlohmann::json;

namespace {

constexpr std::size_t header_bytes = 96;  // docs/checkpoint_format.md

template <class T>
T get(const std::string& file, std::size_t at) {
  T value;
  std::memcpy(&value, file.data() + at, sizeof value);
  return value;
}

template <class T>
void put(std::string& file, std::size_t at, T value) {
  std::memcpy(file.data() + at, &value, sizeof value);
}

std::string index_of(const std::string& file) {
  return file.substr(header_bytes, get<std::uint64_t>(file, 24));
}

/// `file` with another index text, and the hash that goes with it.
std::string with_index(std::string file, const std::string& text) {
  const auto user_block = get<std::uint32_t>(file, 12);
  REQUIRE(header_bytes + text.size() <= user_block);
  std::string padded = text;
  padded.resize(user_block - header_bytes);
  file.replace(header_bytes, padded.size(), padded);
  put<std::uint64_t>(file, 24, text.size());
  put(file, 40, hash_text(file.substr(0, 40) + padded));
  return file;
}

std::string complaint(const std::filesystem::path& path) {
  try {
    CheckpointFile::open(path).verify();
    return "";
  } catch (const Error& failure) {
    REQUIRE(failure.code() == Exit::no_valid_checkpoint);
    return failure.what();
  }
}

struct Lie {
  std::string expected;
  std::function<void(Json&)> tell;
};

}  // namespace

TEST_CASE("Checkpoint reader: an index that lies is refused, whatever it says") {
  const TemporaryDirectory directory;
  const auto path = save_one(directory, State(1));
  const std::string good = file_bytes(path);
  const Lie lies[] = {
      {"lies outside of the file", [](Json& j) { j["tensors"][0]["offset"] = 1ull << 40; }},
      {"lies outside of the file", [](Json& j) { j["tensors"][0]["offset"] = ~0ull - 3; }},
      {"lies outside of the file", [](Json& j) { j["tensors"][0]["offset"] = 96; }},
      {"lies outside of the file", [](Json& j) { j["tensors"][0]["shape"] = {1u << 30}; }},
      {"lies outside of the file", [](Json& j) { j["tensors"][0]["shape"] = {(1ull << 62) - 1}; }},
      {"overflows",
       [](Json& j) {
         j["tensors"][0]["shape"] = {1ull << 33, 1ull << 33};
       }},
      {"overflows", [](Json& j) { j["tensors"][0]["shape"] = {1ull << 62}; }},
      {"overlaps", [](Json& j) { j["tensors"][0]["offset"] = j["tensors"][1]["offset"]; }},
      {"no unsigned integer", [](Json& j) { j["tensors"][0]["shape"] = {-1}; }},
      {"no unsigned integer", [](Json& j) { j["tensors"][0]["offset"] = 4096.5; }},
      {"no unsigned integer", [](Json& j) { j["metadata"]["step"] = "7"; }},
      {"no list", [](Json& j) { j["tensors"][0]["shape"] = 3u; }},
      {"no hash", [](Json& j) { j["tensors"][0]["xxh64"] = "0x0123456789abcde"; }},
      {"no text", [](Json& j) { j["metadata"]["model"] = Json::array(); }},
      {"not printable", [](Json& j) { j["tensors"][0]["name"] = "\x1b[2J"; }},
      {"not printable", [](Json& j) { j["tensors"][0]["name"] = ""; }},
      {"lacks", [](Json& j) { j["metadata"].erase("epoch"); }},
      {"lacks", [](Json& j) { j.erase("tensors"); }},
      {"lacks", [](Json& j) { j["tensors"] = 7; }},
      {"lacks", [](Json& j) { j = Json::array(); }},
  };

  for (const Lie& lie : lies) {
    Json index = Json::parse(index_of(good));
    lie.tell(index);
    write_bytes(path, with_index(good, index.dump()));
    CAPTURE(index.dump());
    CHECK_THAT(complaint(path), Contains(lie.expected));
  }
  write_bytes(path, with_index(good, index_of(good)));
  CHECK(complaint(path).empty());
}

TEST_CASE("Checkpoint reader: an index that is no JSON, or nested without end, is refused") {
  const TemporaryDirectory directory;
  const auto path = save_one(directory, State(1));
  const std::string good = file_bytes(path);

  write_bytes(path, with_index(good, "{\"metadata\": "));
  CHECK_THAT(complaint(path), Contains("no JSON"));
  write_bytes(path, with_index(good, std::string(1500, '[')));
  CHECK_THAT(complaint(path), Contains("nested too deeply"));
}

TEST_CASE("Checkpoint reader: an index of a million empty values is refused at once") {
  const TemporaryDirectory directory;
  const auto path = save_one(directory, State(1));
  constexpr std::size_t user_block = 4 << 20;
  std::string text = "[";
  while (text.size() + 4 < user_block - header_bytes) text += "{},";
  text += "{}]";
  std::string file = file_bytes(path);
  file.resize(user_block);
  put<std::uint32_t>(file, 12, user_block);
  put<std::uint64_t>(file, 16, user_block);

  write_bytes(path, with_index(file, text));
  const auto start = std::chrono::steady_clock::now();
  CHECK_THAT(complaint(path), Contains("too many values"));
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(5));
}

TEST_CASE("Checkpoint reader: a file far larger than its tensors is refused without reading it") {
  constexpr std::uint64_t sparse = 1ull << 40;
  const TemporaryDirectory directory;
  const auto path = save_one(directory, State(1));
  std::string file = file_bytes(path);
  put(file, 16, sparse);

  write_bytes(path, with_index(file, index_of(file)));
  std::filesystem::resize_file(path, sparse);

  CHECK_THAT(complaint(path), Contains("belong to no tensor"));
}

TEST_CASE(
    "Checkpoint reader: a header with impossible sizes is refused before anything is allocated") {
  const TemporaryDirectory directory;
  const auto path = save_one(directory, State(1));
  const std::string good = file_bytes(path);

  for (const std::uint32_t user_block : {0u, 1u, 512u, 5000u, 1u << 23, 1u << 31, ~0u}) {
    std::string file = good;
    put(file, 12, user_block);
    write_bytes(path, file);
    CAPTURE(user_block);
    CHECK_THAT(complaint(path), Contains("impossible"));
  }
  std::string newer = good;
  put<std::uint32_t>(newer, 8, 2);
  write_bytes(path, newer);
  CHECK_THAT(complaint(path), Contains("format version 2"));
}

TEST_CASE("Checkpoint reader: random damage behind fitting hashes never gets past it or kills it") {
  const TemporaryDirectory directory;
  const auto path = save_one(directory, State(1));
  const std::string good = file_bytes(path), index = index_of(good);
  const std::string alphabet = "{}[]\",:0123456789-.eE \\unltrfas\x01\xff";
  std::uint32_t random = 12345;
  const auto next = [&](std::size_t bound) {
    random = random * 1664525u + 1013904223u;
    return static_cast<std::size_t>(random >> 8) % bound;
  };

  std::size_t refused = 0;
  for (int trial = 0; trial < 3000; ++trial) {
    std::string text = index;
    for (std::size_t edits = 1 + next(3); edits > 0; --edits)
      text[next(text.size())] = alphabet[next(alphabet.size())];
    write_bytes(path, with_index(good, text));
    refused += !complaint(path).empty();
  }

  CHECK(refused > 2000);  // the others changed scalars, which nothing contradicts
}
