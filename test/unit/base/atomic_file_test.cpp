#include "ringtrain/base/atomic_file.hpp"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "support/catch.hpp"
#include "support/temporary_folder.hpp"

using namespace ringtrain;

namespace fs = std::filesystem;
using Catch::Contains;

namespace {

std::string content(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::size_t files_in(const fs::path& folder) {
  return static_cast<std::size_t>(
      std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

std::string hex_of(long number) {
  std::ostringstream text;
  text << std::hex << number;
  return text.str();
}

std::string write_text(const fs::path& path, const std::string& text,
                       Durable durable = Durable::yes) {
  return write_atomically(path, durable, [&](std::ostream& out) { out << text; });
}

}  // namespace

TEST_CASE("atomic file: it holds what was written, of any size, and nothing else is there") {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "a";
  const std::size_t bytes = GENERATE(0, 1, 65535, 65536, 65537, 1'000'000);
  const std::string text(bytes, 'x');
  const Durable durable = GENERATE(Durable::yes, Durable::in_a_while);

  CHECK(write_text(path, "before", durable).empty());
  CHECK(write_text(path, text, durable).empty());

  CHECK(content(path) == text);
  CHECK(files_in(folder.path()) == 1);
}

TEST_CASE("atomic file: nobody sees half of it, however many write it") {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "a";
  REQUIRE(write_text(path, std::string(200'000, '0')).empty());
  std::vector<std::thread> writers;
  std::atomic<int> writing{4}, failed{0};
  for (char c = '1'; c <= '4'; ++c)
    writers.emplace_back([&, c] {
      for (int i = 0; i < 20; ++i)
        failed += !write_text(path, std::string(200'000, c), Durable::in_a_while).empty();
      --writing;
    });

  int wrong = 0;
  while (writing > 0) {
    const std::string seen = content(path);
    wrong += seen.size() != 200'000 || seen != std::string(200'000, seen.front());
  }
  for (std::thread& writer : writers) writer.join();

  CHECK(wrong == 0);
  CHECK(failed == 0);
  CHECK(files_in(folder.path()) == 1);
}

TEST_CASE("atomic file: a link in its place is replaced, not followed") {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "a", other = folder.path() / "other";
  std::ofstream(other) << "of somebody else";
  fs::create_symlink(other, path);

  CHECK(write_text(path, "mine").empty());

  CHECK(content(other) == "of somebody else");
  CHECK(content(path) == "mine");
  CHECK_FALSE(fs::is_symlink(path));
}

TEST_CASE("output file: what links lead to is written, there already or not, and links stay") {
  const TemporaryFolder folder;
  const fs::path link = folder.path() / "link", second = folder.path() / "second",
                 other = folder.path() / "elsewhere" / "other";
  const bool there = GENERATE(true, false);
  fs::create_directory(folder.path() / "elsewhere");
  if (there) std::ofstream(other) << "before";
  fs::create_symlink("elsewhere/other", second);
  fs::create_symlink(second, link);

  CHECK(why_unwritable(link).empty());
  CHECK(write_output(link, Durable::yes, [](std::ostream& out) { out << "mine"; }).empty());

  CHECK(content(other) == "mine");
  CHECK(fs::is_symlink(link));
  CHECK(fs::is_symlink(second));
  CHECK(files_in(folder.path() / "elsewhere") == 1);
}

TEST_CASE("output file: streams, devices and links to them are refused, and stay") {
  const TemporaryFolder folder;
  const fs::path link = folder.path() / "link";
  const std::string target =
      GENERATE("/dev/stdout", "/dev/fd/1", "/dev/null", "/proc/self/fd/1", "/dev/new", "/proc/new");
  CAPTURE(target);
  fs::create_symlink(target, link);
  bool called = false;

  for (const fs::path& path : {fs::path(target), link}) {
    CHECK_THAT(why_unwritable(path), Contains("what lies in /dev"));
    CHECK_THAT(write_output(path, Durable::yes, [&](std::ostream&) { called = true; }),
               Contains("what lies in /dev"));
  }

  CHECK_FALSE(called);
  CHECK(fs::is_symlink(link));
}

TEST_CASE("output file: links in a circle and those of no folder are told") {
  const TemporaryFolder folder;
  const fs::path link = folder.path() / "link", lost = folder.path() / "lost";
  fs::create_symlink("link", link);
  fs::create_symlink("no/file", lost);

  CHECK(why_unwritable(link) == "Too many levels of symbolic links");
  CHECK(why_unwritable(lost) == "No such file or directory");
}

// Hosts may have the same gethostid(), and processes on two hosts the same number.
TEST_CASE("atomic file: what a process of the same number writes on another host is left alone") {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "a";
  const auto of_another = [&](int file) {
    return path.string() + "." + hex_of(::gethostid()) + "-" + std::to_string(::getpid()) + "-" +
           std::to_string(file) + ".part";
  };
  for (int file = 0; file < 1000; ++file) std::ofstream(of_another(file)) << "half of it";

  for (int i = 0; i < 10; ++i) CHECK(write_text(path, "mine", Durable::in_a_while).empty());

  CHECK(files_in(folder.path()) == 1001);
}

TEST_CASE("atomic file: what dead processes left of it a day ago goes, and nothing else") {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "a";
  const auto write = [&](const char* name, int hours) {
    std::ofstream(folder.path() / name) << "half of it";
    fs::last_write_time(folder.path() / name,
                        fs::file_time_type::clock::now() - std::chrono::hours(hours));
  };
  write("a.0123-77.part", 25);
  write("a.4567-77.part", 23);
  write("b.0123-77.part", 25);
  write("a.lock", 25);
  write("a", 25);

  remove_left_over(path);
  remove_left_over(folder.path() / "none" / "a");

  CHECK_FALSE(fs::exists(folder.path() / "a.0123-77.part"));
  CHECK(files_in(folder.path()) == 4);
}

TEST_CASE("atomic file: where it cannot be written, what was there stays, and nothing is left") {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "a";
  REQUIRE(write_text(path, "before").empty());
  struct rlimit before {};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  struct rlimit small = before;
  small.rlim_cur = 100'000;

  REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
  const std::string reason = write_text(path, std::string(300'000, 'x'));
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
  std::signal(SIGXFSZ, handler);

  CHECK(reason == "File too large; `ulimit -f` is 97 KiB: raise it");
  CHECK(content(path) == "before");
  CHECK(files_in(folder.path()) == 1);
  CHECK(write_text(folder.path() / "no" / "a", "x") == "No such file or directory");
  CHECK(write_text(folder.path(), "x") == "Is a directory");
  CHECK(why_unwritable(folder.path()) == "it is there and no regular file");
  CHECK(why_unwritable(folder.path() / "no" / "a") == "No such file or directory");
  CHECK(why_unwritable(path).empty());
  CHECK(files_in(folder.path()) == 1);
}

TEST_CASE("atomic file: missing folders are made, however their path is written") {
  const TemporaryFolder folder;
  const std::string tail = GENERATE("a", "a/b/c", "a/b/", "./a//b", "a/../b");

  CHECK(create_folders(folder.path() / tail).empty());
  CHECK(create_folders(folder.path() / tail).empty());

  CHECK(fs::is_directory(folder.path() / tail));
  std::ofstream(folder.path() / "file") << "x";
  CHECK(create_folders(folder.path() / "file" / "a") == "Not a directory");
}
