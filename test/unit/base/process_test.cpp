#include "ringtrain/base/process.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "support/catch.hpp"

using namespace ringtrain;
using namespace std::chrono_literals;
using Catch::Contains;

namespace {

pid_t start_sleeper() {
  const pid_t child = ::fork();
  if (child == 0)
    for (;;) ::pause();
  return child;
}

std::string why_idle_after(pid_t process, int signal) {
  ::kill(process, signal);
  for (int i = 0; i < 1000 && why_idle(process).empty(); ++i) std::this_thread::sleep_for(10ms);
  return why_idle(process);
}

}  // namespace

TEST_CASE("Process: /proc says its name, state, parent and start, which tells it from another") {
  const auto self = process_status(::getpid());
  const pid_t child = start_sleeper();
  const auto other = process_status(child);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);

  REQUIRE(self);
  REQUIRE(other);
  CHECK(self->parent == ::getppid());
  CHECK(other->parent == ::getpid());
  CHECK(other->name == self->name);
  CHECK(self->started > 0);
  CHECK(other->started >= self->started);
  CHECK_FALSE(process_status(child));
  CHECK(pid_namespace() != 0);
}

TEST_CASE("Process: one that is stopped or dead is idle, and what to do is said") {
  const pid_t child = start_sleeper();
  CHECK(why_idle(child).empty());

  const std::string id = std::to_string(child);
  CHECK(why_idle_after(child, SIGSTOP) ==
        "stopped (state T of /proc/" + id + "/stat): kill -CONT " + id + " lets it go on");
  ::kill(child, SIGCONT);
  for (int i = 0; i < 1000 && !why_idle(child).empty(); ++i) std::this_thread::sleep_for(10ms);
  CHECK(why_idle(child).empty());
  CHECK(why_idle_after(child, SIGKILL) == "dead");  // a zombie, until it is waited for
  ::waitpid(child, nullptr, 0);
  CHECK(why_idle(child) == "dead");
}
