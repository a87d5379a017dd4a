#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <set>
#include <sstream>

#include "support/catch.hpp"
#include "unit/io/checkpoint/checkpoint_fixture.hpp"

using namespace ringtrain;
using namespace ringtrain::io;

namespace {

constexpr int marker = -4242;  // close() of it fails, does nothing, and is easy to find in a trace
constexpr int saves = 5;

/// Names of the system calls between the markers of a trace, with all their arguments' text.
std::vector<std::string> calls_between_markers(const std::filesystem::path& trace) {
  std::istringstream lines(file_bytes(trace));
  std::vector<std::string> calls;
  bool inside = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("close(" + std::to_string(marker)))
      inside = !inside;
    else if (inside)
      calls.push_back(line);
  }
  return calls;
}

}  // namespace

TEST_CASE("The save path of the next test, run under strace", "[.save-path]") {
  const TemporaryDirectory directory;
  const State state(1, 100'000);
  WriterProcess process = WriterProcess::start();
  CheckpointWriter writer(process, directory, state.layout, {.run_id = "test"});
  for (std::uint64_t step = 1; step <= saves; ++step) {
    const State next(step, 100'000);
    const auto copy = next.copier();
    ::close(marker);
    writer.try_save(next.metadata, copy);
    const auto events = writer.poll();
    ::close(marker);
    if (events.empty()) await(writer, SaveEvent::Kind::saved);  // else it was durable at once
  }
}

TEST_CASE("Checkpoint writer: a save costs the trainer no file call, no lock and no wait") {
  const TemporaryDirectory directory;
  const auto trace = directory / "trace";
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  // A sanitizer cannot look for leaks in a process that is traced, and fails it.
  const std::string command = "ASAN_OPTIONS=detect_leaks=0 strace -o '" + trace.string() + "' '" +
                              self + "' '[.save-path]' >/dev/null 2>&1";
  const bool may_trace = std::system("strace -o /dev/null true 2>/dev/null") == 0;
  if (!may_trace) skip_test("strace is missing or may not trace");
  REQUIRE(std::system(command.c_str()) == 0);

  int sent = 0;
  for (const std::string& call : calls_between_markers(trace)) {
    CAPTURE(call);
    const std::string name = call.substr(0, call.find('('));
    CHECK(std::set<std::string>{"sendmsg", "recvmsg", "brk", "mmap", "munmap"}.contains(name));
    if (name == "sendmsg" || name == "recvmsg")
      CHECK(call.find("MSG_DONTWAIT") != std::string::npos);
    if (name == "mmap") CHECK(call.find("MAP_ANONYMOUS") != std::string::npos);
    sent += name == "sendmsg";
  }
  CHECK(sent == saves);
}
