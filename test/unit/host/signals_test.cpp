#include "ringtrain/host/signals.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <functional>
#include <thread>

#include "support/catch.hpp"

using namespace ringtrain;
using namespace ringtrain::host;

namespace {

bool equal(StepRequest a, StepRequest b) { return a.stop == b.stop && a.signal == b.signal; }

// What `run` returns in a process of its own, or 128 and the signal that ended that.
int in_child(const std::function<int()>& run) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(run());
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

bool soon(const std::function<bool()>& happens) {
  for (int i = 0; i < 60'000; ++i) {
    if (happens()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

}  // namespace

TEST_CASE("Wishes: what the ranks agree on") {
  CHECK(equal(agreed_request(0, 0, 0), {}));
  CHECK(equal(agreed_request(1, 0, 0), {true, 0}));
  CHECK(equal(agreed_request(2, 2, 2 * SIGINT), {true, SIGINT}));
  CHECK(equal(agreed_request(1, 1, SIGTERM), {true, SIGTERM}));
  CHECK(equal(agreed_request(2, 2, SIGTERM + SIGINT), {true, SIGTERM}));
  CHECK(equal(agreed_request(2, 2, 2 * SIGHUP), {true, SIGHUP}));
  CHECK(equal(agreed_request(1, 1, SIGXCPU), {true, SIGXCPU}));
  CHECK(equal(agreed_request(2, 2, SIGTERM + SIGHUP), {true, SIGTERM}));
  CHECK(equal(agreed_request(4, 4, 3 * SIGUSR1 + SIGINT), {true, SIGTERM}));
  CHECK(equal(agreed_request(1, 1, save_refused), {true, save_refused}));
  CHECK(equal(agreed_request(4, 4, save_refused + 3 * SIGTERM), {true, save_refused}));
  CHECK(equal(agreed_request(0, 3, 3 * SIGUSR1), {false, SIGUSR1}));
}

TEST_CASE("Wishes: to save beside to stop does not change how the job ends") {
  CHECK(equal(agreed_request(1, 1, SIGUSR1), {true, 0}));
  CHECK(equal(agreed_request(1, 2, SIGUSR1 + SIGTERM), {true, SIGTERM}));
}

TEST_CASE("Stop request: SIGUSR1 is held until there is one, and several are one") {
  const int code = in_child([] {
    hold_save_signals();
    ::kill(::getpid(), SIGUSR1);
    ::kill(::getpid(), SIGUSR1);
    const SignalThread thread;
    StopSignals request;
    if (!soon([&] { return request.take_save(); })) return 1;
    if (request.take_save()) return 2;
    ::kill(::getpid(), SIGUSR1);
    if (!soon([&] { return request.take_save(); })) return 3;
    return request.signal() == 0 ? 0 : 4;
  });

  CHECK(code == 0);
}

TEST_CASE("Signal thread: it alone takes signals, whatever other threads do") {
  const int code = in_child([] {
    const SignalThread thread;
    bool blocked = true;
    std::thread other([&] {
      sigset_t mask;
      ::pthread_sigmask(SIG_BLOCK, nullptr, &mask);
      for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGXCPU, SIGUSR1})
        blocked = blocked && sigismember(&mask, signal) == 1;
    });
    other.join();
    if (!blocked) return 1;
    const StopSignals request;
    ::kill(::getpid(), SIGTERM);
    return soon([&] { return request.signal() == SIGTERM; }) ? 0 : 2;
  });

  CHECK(code == 0);
}

TEST_CASE("Signal thread: behind it, the thread that made it takes signals again") {
  const int code = in_child([] {
    std::signal(SIGTERM, SIG_DFL);
    { const SignalThread thread; }
    ::kill(::getpid(), SIGTERM);
    std::this_thread::sleep_for(std::chrono::seconds(60));
    return 0;
  });

  CHECK(code == 128 + SIGTERM);
}

TEST_CASE("Signal thread: before there is a stop request, SIGTERM ends the process") {
  const int code = in_child([] {
    std::signal(SIGTERM, SIG_DFL);
    const SignalThread thread;
    ::kill(::getpid(), SIGTERM);
    std::this_thread::sleep_for(std::chrono::seconds(60));
    return 0;
  });

  CHECK(code == 128 + SIGTERM);
}

TEST_CASE(
    "Stop request: a second signal within three seconds is the same wish, a later one ends the "
    "process",
    "[waits]") {
  const pid_t child = ::fork();
  if (child == 0) {
    const StopSignals request;
    std::raise(SIGTERM);
    std::raise(SIGTERM);
    std::raise(SIGINT);
    if (request.signal() != SIGTERM) ::_exit(1);
    std::this_thread::sleep_for(std::chrono::milliseconds(4100));
    std::raise(SIGXCPU);  // comes each second behind a limit: never a wish of its own
    std::raise(SIGTERM);
    ::_exit(2);
  }
  int status = 0;
  ::waitpid(child, &status, 0);

  REQUIRE(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGTERM);
}

TEST_CASE("Stop request: SIGHUP and SIGXCPU are requests, too, unless they were ignored") {
  const int signal = GENERATE(SIGHUP, SIGXCPU);
  const bool ignored = GENERATE(false, true);
  CAPTURE(signal, ignored);

  const int code = in_child([&] {
    std::signal(signal, ignored ? SIG_IGN : SIG_DFL);
    const SignalThread thread;
    StopSignals request;
    ::kill(::getpid(), signal);
    ::kill(::getpid(), SIGUSR1);
    if (!soon([&] { return request.take_save(); })) return 1;
    return request.signal() == (ignored ? 0 : signal) ? 0 : 2;
  });

  CHECK(code == 0);
}

TEST_CASE("Stop request: the launcher's end is one, and what is to be done at a stop is done",
          "[waits]") {
  std::array<int, 2> told{};
  REQUIRE(::pipe2(told.data(), O_CLOEXEC) == 0);
  const pid_t launcher = ::fork();
  if (launcher == 0) {
    ::prctl(PR_SET_NAME, "mpirun");
    if (::fork() == 0) {  // a rank
      const SignalThread thread;
      StopSignals request;
      const auto say = [&](char word) { return ::write(told[1], &word, 1) == 1; };
      const auto at_stop = request.call_at_stop([&] { return say(request.signal() == SIGTERM); });
      say('r');
      std::this_thread::sleep_for(std::chrono::seconds(60));
      ::_exit(0);
    }
    ::pause();
  }
  ::close(told[1]);
  char word = 0;
  REQUIRE(::read(told[0], &word, 1) == 1);
  CHECK(word == 'r');

  ::kill(launcher, SIGKILL);

  REQUIRE(::read(told[0], &word, 1) == 1);  // before it is reaped
  CHECK(word == 1);
  ::waitpid(launcher, nullptr, 0);
}

TEST_CASE("Stop request: before the first step is done one signal ends a process that hangs") {
  const int code = in_child([] {
    const SignalThread thread;
    const StopSignals request(1);
    ::kill(::getpid(), SIGTERM);
    std::this_thread::sleep_for(std::chrono::seconds(60));
    return 0;
  });

  CHECK(code == 128 + SIGTERM);
}

TEST_CASE("Stop request: after the first step a signal waits for the one under way", "[waits]") {
  const int code = in_child([] {
    const SignalThread thread;
    StopSignals request(1);
    ::kill(::getpid(), SIGTERM);
    if (!soon([&] { return request.signal() == SIGTERM; })) return 1;
    request.first_step_done();
    std::this_thread::sleep_for(std::chrono::seconds(2));
    return 0;
  });

  CHECK(code == 0);
}

TEST_CASE("Stop request: a signal between two ends nobody and is the next one's") {
  { const StopSignals first; }
  std::raise(SIGTERM);
  const StopSignals next;

  CHECK(next.signal() == SIGTERM);
}
