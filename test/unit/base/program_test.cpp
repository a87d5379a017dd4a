#include "ringtrain/base/program.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "support/catch.hpp"

using namespace ringtrain;

namespace {

std::string output_of(const std::string& command) {
  std::string text;
  FILE* pipe = ::popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::array<char, 4096> piece{};
  while (std::fgets(piece.data(), static_cast<int>(piece.size()), pipe) != nullptr)
    text += piece.data();
  REQUIRE(::pclose(pipe) == 0);
  return text;
}

}  // namespace

// Runs only in processes that the next tests start; the second time it was started by itself.
TEST_CASE("for_shell: words are what a shell makes of the text again") {
  CHECK(for_shell(std::vector<std::string>{"train", "--data", "images:/d", "a b", "", "it's"}) ==
        "train --data images:/d 'a b' '' 'it'\\''s'");
  CHECK(for_shell(std::vector<std::string>{"$x", "*"}) == "'$x' '*'");
  CHECK(for_shell({}).empty());
}

TEST_CASE("probe of the next tests", "[.probe]") {
  if (std::getenv("RINGTRAIN_PROBED") == nullptr) {
    ::setenv("RINGTRAIN_PROBED", "1", 1);
    const std::vector<std::string> words = own_command();
    std::vector<char*> argv;
    for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    ::execv("/proc/self/exe", argv.data());
  }
  std::printf("[program %s words %zu]\n", own_program().c_str(), own_command().size());
}

TEST_CASE("own program: started as usual, it is what the kernel started") {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();

  CHECK(own_program() == "/proc/self/exe");
  CHECK(output_of("'" + self + "' '[.probe]'").find("[program /proc/self/exe words 2]") !=
        std::string::npos);
}

TEST_CASE("own program: behind a loader it is not the loader, and starts again") {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  const std::string loader = "/lib64/ld-linux-x86-64.so.2";
  if (!std::filesystem::exists(loader)) skip_test("no glibc of x86-64");

  CHECK(output_of(loader + " --argv0 train '" + self + "' '[.probe]'")
            .find("[program " + self + " words 5]") != std::string::npos);
}
