// Files whose hashes fit but whose index lies: whoever can write a checkpoint can also hash it.
#include <ctime>
#include <functional>
#include <nlohmann/json.hpp>

#include "io/checkpoint/checkpoint_index.hpp"
#include "ringtrain/base/error.hpp"
#include "support/catch.hpp"
#include "unit/io/checkpoint/checkpoint_bytes.hpp"
#include "unit/io/checkpoint/checkpoint_complaint.hpp"
#include "unit/io/checkpoint/checkpoint_fixture.hpp"

using namespace ringtrain;
using namespace ringtrain::io;
using namespace ringtrain::test;
using Catch::Contains;
using Json = nlohmann::json;

namespace {

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
      {"lies outside of the file", [](Json& j) { j["tensors"][0]["offset"] = 128; }},
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
      {"no unsigned integer",
       [](Json& j) {
         j["metadata"]["unreadable"] = {1, -1};
       }},
      {"no list", [](Json& j) { j["tensors"][0]["shape"] = 3u; }},
      {"no list", [](Json& j) { j["metadata"]["unreadable"] = 3u; }},
      {"no hash", [](Json& j) { j["tensors"][0]["xxh64"] = "0x0123456789abcde"; }},
      {"no text", [](Json& j) { j["metadata"]["model"] = Json::array(); }},
      {"not printable", [](Json& j) { j["tensors"][0]["name"] = "\x1b[2J"; }},
      {"not printable", [](Json& j) { j["tensors"][0]["name"] = ""; }},
      {"too long", [](Json& j) { j["tensors"][0]["name"] = std::string(1025, 'n'); }},
      {"no path", [](Json& j) { j["tensors"][0]["name"] = "../../etc/passwd"; }},
      {"no path", [](Json& j) { j["tensors"][0]["name"] = "/weights/x"; }},
      {"no path", [](Json& j) { j["tensors"][0]["name"] = "weights//x"; }},
      {"there twice", [](Json& j) { j["tensors"][0]["name"] = j["tensors"][1]["name"]; }},
      {"more than 32 dimensions",
       [](Json& j) { j["tensors"][0]["shape"] = std::vector<unsigned>(33, 1); }},
      {"too long", [](Json& j) { j["metadata"]["config"] = std::string(70'000, ' ') + "{}"; }},
      {"too long", [](Json& j) { j["metadata"]["model"] = std::string(2000, 'm'); }},
      {"nested too deeply", [](Json& j) { j["metadata"]["config"] = std::string(1500, '['); }},
      {"no JSON", [](Json& j) { j["metadata"]["plans"] = "nonsense"; }},
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

TEST_CASE("Checkpoint reader: a key that is there twice, or an id that is none, is refused") {
  const TemporaryDirectory directory;
  const auto path = save_one(directory, State(1));
  const std::string good = file_bytes(path);
  std::string text = index_of(good);
  text.insert(text.find("\"step\""), "\"step\":1,");
  std::string run = good;
  put(run, at_run_id, '\x1b');

  write_bytes(path, with_index(good, text));
  CHECK_THAT(complaint(path), Contains("has 'step' twice"));
  write_bytes(path, with_header_hashes(run));
  CHECK_THAT(complaint(path), Contains("run id is not printable"));
  for (const std::string lineage : {"0123456789abcde", "0123456789ABCDEF", "\x1b[2J456789abcdef",
                                    "0123456789abcdef0", "0123456789abcdef0123456789abcdef"}) {
    std::string file = good;
    file.replace(at_lineage, lineage.size(), lineage);
    write_bytes(path, with_header_hashes(file));
    CHECK_THAT(complaint(path), Contains("lineage"));
  }
}

TEST_CASE("Checkpoint reader: an index of a million values is refused at once") {
  const std::string value = GENERATE("{}", "[]", "\"\"", "7", "\"0123456789abcdef\"");
  const TemporaryDirectory directory;
  const auto path = save_one(directory, State(1));
  constexpr std::size_t user_block = 4 << 20;
  std::string text = "[" + value;
  while (text.size() + 2 * value.size() + 2 < user_block - ringtrain::test::header_bytes)
    text += "," + value;

  write_bytes(path, with_index(file_bytes(path), text + "]"));
  const std::clock_t start = std::clock();  // of the processor, whoever else wants it
  const std::string said = complaint(path);

  CHECK_THAT(said, Contains("too many values") || Contains("lacks"));
  CHECK(std::clock() - start < 5 * CLOCKS_PER_SEC);
}

TEST_CASE("Checkpoint reader: a file far larger than its tensors is refused without reading it") {
  const auto [length, reason] =
      GENERATE(std::pair(1ull << 27, "belong to no tensor"),
               std::pair(1ull << 40, "1099511627776 bytes long, but only"),
               std::pair((1ull << 63) - 1, "9223372036854775807 bytes long, but only"));
  const TemporaryDirectory directory("/dev/shm");  // takes files of 8 EiB
  const auto path = save_one(directory, State(1));
  std::string file = file_bytes(path);
  put(file, at_file_bytes, length);

  write_bytes(path, with_header_hashes(file));
  std::filesystem::resize_file(path, length);

  CHECK_THAT(complaint(path), Contains(reason));
}

TEST_CASE("Checkpoint reader: a tensor that is nothing but a hole does not keep the reader") {
  const TemporaryDirectory directory("/dev/shm");
  const auto path = save_one(directory, State(1));
  std::string file = file_bytes(path);
  constexpr std::uint64_t length = 1ull << 45;
  Json index = Json::parse(index_of(file));
  index["tensors"][0]["offset"] = file.size();
  index["tensors"][0]["shape"] = {(length - file.size()) / 4};
  file = with_index(file, index.dump());
  put(file, at_file_bytes, length);

  write_bytes(path, with_header_hashes(file));
  std::filesystem::resize_file(path, length);
  const std::clock_t start = std::clock();  // of the processor, whoever else wants it

  CHECK_THAT(complaint(path), Contains("ever written"));
  CHECK_THROWS_WITH(find_latest(directory), Contains("ever written"));
  CHECK(std::clock() - start < 5 * CLOCKS_PER_SEC);
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
  put<std::uint32_t>(newer, 8, 3);
  write_bytes(path, newer);
  CHECK_THAT(complaint(path), Contains("format version 3; this build reads versions 1 and 2"));
}

TEST_CASE("Checkpoint reader: the largest index that is written can be read") {
  std::vector<TensorInfo> tensors;
  for (std::size_t i = 0; i < most_tensors; ++i)
    tensors.push_back({fmt::format("optimizer/momentum/layer{}.weight", i), {512, 3, 3, 512}});
  CheckpointIndex index;
  index.metadata = State(1).metadata;
  index.metadata.config = '"' + std::string(longest_text - 2, 'c') + '"';
  index.user_block = user_block_bytes(index.metadata, tensors);
  index.file_bytes = index.user_block;
  for (const TensorInfo& info : tensors) {
    const std::uint64_t bytes = element_count(info) * sizeof(float);
    index.tensors.push_back({info, index.file_bytes, bytes, bytes});
    index.file_bytes += bytes;
  }

  CHECK(decode(encode(index), index.file_bytes).tensors.size() == most_tensors);
  tensors.push_back({"weights/one.more", {1}});
  CHECK_THROWS_WITH(user_block_bytes(index.metadata, tensors), Contains("room for 16384"));
}
