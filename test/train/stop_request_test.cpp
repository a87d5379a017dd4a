#include "train/stop_request.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "support/catch.hpp"

using namespace ringtrain;

namespace {

bool equal(Wish a, Wish b) { return a.stop == b.stop && a.signal == b.signal; }

}  // namespace

TEST_CASE("Wishes: what the ranks agree on") {
  CHECK(equal(agreed_wish(0, 0, 0), {}));
  CHECK(equal(agreed_wish(1, 0, 0), {true, 0}));
  CHECK(equal(agreed_wish(2, 2, 2 * SIGINT), {true, SIGINT}));
  CHECK(equal(agreed_wish(1, 1, SIGTERM), {true, SIGTERM}));
  CHECK(equal(agreed_wish(2, 2, SIGTERM + SIGINT), {true, SIGTERM}));
  CHECK(equal(agreed_wish(0, 3, 3 * SIGUSR1), {false, SIGUSR1}));
}

TEST_CASE("Wishes: to save beside to stop does not change how the job ends") {
  CHECK(equal(agreed_wish(1, 1, SIGUSR1), {true, 0}));
  CHECK(equal(agreed_wish(1, 2, SIGUSR1 + SIGTERM), {true, SIGTERM}));
}

TEST_CASE("Stop request: SIGUSR1 is held until there is one, and several are one") {
  hold_save_signals();
  std::raise(SIGUSR1);
  std::raise(SIGUSR1);
  StopRequest request;

  CHECK(request.take_save());
  CHECK_FALSE(request.take_save());
  std::raise(SIGUSR1);
  CHECK(request.take_save());
  CHECK(request.signal() == 0);
}

TEST_CASE(
    "Stop request: a second signal within three seconds is the same wish, a later one ends the "
    "process") {
  const pid_t child = ::fork();
  if (child == 0) {
    const StopRequest request;
    std::raise(SIGTERM);
    std::raise(SIGTERM);
    std::raise(SIGINT);
    if (request.signal() != SIGTERM) ::_exit(1);
    std::this_thread::sleep_for(std::chrono::milliseconds(4100));
    std::raise(SIGTERM);
    ::_exit(2);
  }
  int status = 0;
  ::waitpid(child, &status, 0);

  REQUIRE(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGTERM);
}

TEST_CASE("Stop request: a signal between two ends nobody and is the next one's") {
  { const StopRequest first; }
  std::raise(SIGTERM);
  const StopRequest next;

  CHECK(next.signal() == SIGTERM);
}
