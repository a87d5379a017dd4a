#include "ringtrain/monitor/progress.hpp"

#include <atomic>
#include <string>
#include <thread>
#include <utility>

#include "support/catch.hpp"

using namespace ringtrain;
using namespace ringtrain::monitor;

TEST_CASE("progress: an item is that of the phase it was entered with") {
  Progress progress;
  CHECK(progress.item().empty());
  progress.at(Work::open, "/mnt/a");
  CHECK(progress.now().phase == metrics::Phase::open);
  CHECK(progress.item() == "/mnt/a");
  progress.at(Work::list, "/mnt/b");
  CHECK(progress.now().phase == metrics::Phase::list);
  CHECK(progress.item() == "/mnt/b");
  progress.enter(metrics::Phase::resume);
  CHECK(progress.item().empty());
  progress.at(Work::read, "/mnt/c");
  CHECK(progress.now().phase == metrics::Phase::resume);
  CHECK(progress.item() == "/mnt/c");
}

TEST_CASE("progress: it moves with each phase and each advance, and else not") {
  Progress progress;
  auto moved = [&, last = progress.now().moved]() mutable {
    return std::exchange(last, progress.now().moved) != progress.now().moved;
  };
  CHECK_FALSE(moved());
  progress.at(Work::index, "/mnt/a");
  CHECK(moved());
  CHECK_FALSE(moved());
  std::thread([&] { progress.advance(); }).join();
  CHECK(moved());
  CHECK(progress.item() == "/mnt/a");
  progress.at(Work::index, "/mnt/a");
  CHECK(moved());
}

TEST_CASE("shared text: of a long one the end is kept") {
  SharedText text;
  const std::string path = std::string(300, 'x') + "/metrics.jsonl";
  text.write(1, path);
  CHECK(text.read(1) == path.substr(path.size() - SharedText::most));
  CHECK(text.read(2).empty());
}

TEST_CASE("shared text: what is read is whole, or nothing") {
  SharedText text;
  std::atomic<bool> ended{false};
  std::thread writer([&] {
    for (std::uint64_t i = 0; i < 200'000; ++i)
      text.write(7, std::string(i % 200, static_cast<char>('a' + i % 26)));
    ended = true;
  });
  bool torn = false;
  while (!ended) {
    const std::string read = text.read(7);
    if (!read.empty()) torn = torn || read.find_first_not_of(read.front()) != read.npos;
  }
  writer.join();
  CHECK_FALSE(torn);
}
