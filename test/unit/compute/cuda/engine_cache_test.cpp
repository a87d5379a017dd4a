#include "compute/cuda/engines/engine_cache.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <optional>

#include "support/catch.hpp"
#include "support/memory_limit.hpp"
#include "support/temporary_folder.hpp"

using namespace ringtrain;
using namespace ringtrain::compute;
using namespace ringtrain::compute::cuda;

namespace {

namespace fs = std::filesystem;

const EngineScope scope{91900, "GPU of a / strange name", 90, false};
const RequestKey first{"convolution", "3x3"}, second{"weight gradient", "1x1"};

Choice choice(std::size_t place) { return {place, "cudnn engine 7", 12.5, 1024}; }

void save(const fs::path& folder, const RequestKey& request, std::size_t place) {
  EngineCache cache(folder, scope);
  cache.add(request, choice(place));
  cache.save();
  REQUIRE(cache.notes().empty());
}

std::optional<std::size_t> place_in(const fs::path& folder, const RequestKey& request) {
  const EngineCache cache(folder, scope);
  CHECK(cache.notes().empty());
  const Choice* const found = cache.find(request);
  return found == nullptr ? std::nullopt : std::optional(found->place);
}

void write(const fs::path& file, const std::string& text) { std::ofstream(file) << text; }

std::string read(const fs::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string replaced(std::string text, const std::string& old, const std::string& now) {
  const std::size_t at = text.find(old);
  REQUIRE(at != text.npos);
  return text.replace(at, old.size(), now);
}

}  // namespace

TEST_CASE("engine cache: what was saved is found, whole") {
  const TemporaryFolder folder;
  save(folder.path() / "made" / "anew", first, 3);

  const EngineCache cache(folder.path() / "made" / "anew", scope);

  REQUIRE(cache.find(first) != nullptr);
  CHECK(cache.find(first)->place == 3);
  CHECK(cache.find(first)->engine == "cudnn engine 7");
  CHECK(cache.find(first)->microseconds == 12.5);
  CHECK(cache.find(first)->workspace == 1024);
  CHECK(cache.find(second) == nullptr);
  CHECK(cache.find({first.first, second.second}) == nullptr);
}

TEST_CASE("engine cache: another cuDNN, GPU or rule has a file of its own") {
  const TemporaryFolder folder;
  save(folder.path(), first, 3);
  const auto other = GENERATE(
      EngineScope{91901, scope.device, 90, false}, EngineScope{91900, "another", 90, false},
      EngineScope{91900, scope.device, 100, false}, EngineScope{91900, scope.device, 90, true});

  const EngineCache cache(folder.path(), other);

  CHECK(cache.find(first) == nullptr);
  CHECK(cache.notes().empty());
  CHECK(cache.file() != EngineCache(folder.path(), scope).file());
}

TEST_CASE("engine cache: without a folder nothing is kept, and nothing is wrong") {
  EngineCache cache({}, scope);

  cache.add(first, choice(1));
  cache.save();

  CHECK(cache.notes().empty());
}

TEST_CASE("engine cache: processes add to each other's choices, and the last one wins") {
  const TemporaryFolder folder;
  EngineCache one(folder.path(), scope), other(folder.path(), scope);
  one.add(first, choice(1));
  other.add(first, choice(2));
  other.add(second, choice(5));

  other.save();
  one.save();
  other.save();  // has nothing new

  CHECK(place_in(folder.path(), first) == 1);
  CHECK(place_in(folder.path(), second) == 5);
}

TEST_CASE("engine cache: readers see no half-written file while processes write") {
  const TemporaryFolder folder;
  save(folder.path(), first, 1);
  std::vector<pid_t> writers;
  for (int writer = 0; writer < 2; ++writer) {
    writers.push_back(::fork());
    if (writers.back() != 0) continue;
    for (int i = 0; i < 50; ++i) {
      EngineCache cache(folder.path(), scope);
      cache.add({"writer", std::to_string(writer) + std::string(2000, 'x')}, choice(i));
      cache.save();
      if (!cache.notes().empty()) ::_exit(1);
    }
    ::_exit(0);
  }

  for (int i = 0; i < 200; ++i) CHECK(place_in(folder.path(), first) == 1);

  for (const pid_t writer : writers) {
    int status = 0;
    REQUIRE(::waitpid(writer, &status, 0) == writer);
    CHECK(status == 0);
  }
  CHECK(std::distance(fs::directory_iterator(folder.path()), {}) == 1);  // nothing temporary
}

TEST_CASE("engine cache: a damaged or foreign file is told once and replaced") {
  const TemporaryFolder folder;
  save(folder.path(), first, 3);
  const fs::path file = EngineCache(folder.path(), scope).file();
  const std::string good = read(file);
  const std::string bad = GENERATE_COPY(
      std::string(), std::string("{}"), std::string("\0\xff\xfe", 3),
      good.substr(0, good.size() / 2), replaced(good, "\"format\": 4", "\"format\": 3"),
      replaced(good, "91900", "91901"), replaced(good, "\"place\"", "\"palace\""),
      replaced(good, "\"cudnn engine 7\"", "7"), replaced(good, "[", "[7,"));
  write(file, bad);

  EngineCache cache(folder.path(), scope);

  CHECK(cache.find(first) == nullptr);
  REQUIRE(cache.notes().size() == 1);
  CHECK_THAT(cache.notes()[0], Catch::Contains(file.string()));
  cache.add(second, choice(4));
  cache.save();
  CHECK(cache.notes().size() == 1);
  CHECK(place_in(folder.path(), second) == 4);
}

TEST_CASE("engine cache: where nothing can be written, that is told") {
  const TemporaryFolder folder;
  write(folder.path() / "file", "no folder");

  EngineCache cache(folder.path() / "file", scope);
  cache.add(first, choice(1));
  cache.save();

  REQUIRE(cache.notes().size() == 1);
  CHECK_THAT(cache.notes()[0], Catch::Contains("not kept"));
}

TEST_CASE("engine cache: what has the file's name and is none is passed over") {
  const TemporaryFolder folder;
  fs::create_directories(EngineCache(folder.path(), scope).file());

  const EngineCache cache(folder.path(), scope);

  CHECK(cache.notes().size() == 1);
}

TEST_CASE("engine cache: a hostile text of 1 KB costs no more than such a text may") {
  const TemporaryFolder folder;
  save(folder.path(), first, 3);
  const fs::path file = fs::directory_iterator(folder.path())->path();
  for (const std::string& text :
       {std::string(1000, '['), std::string("{\"choices\":") + std::string(900, '[')}) {
    write(file, text);
    CHECK(in_limited_memory([&] {
            const EngineCache cache(folder.path(), scope);
            return std::string(cache.notes().empty() ? "silent" : "passed over");
          }) == "passed over");
  }
}
