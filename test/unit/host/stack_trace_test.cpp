#include "ringtrain/host/stack_trace.hpp"

#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "support/catch.hpp"
#include "support/sanitized.hpp"

using namespace ringtrain;
using namespace ringtrain::host;
using Catch::Contains;

namespace {

/// All stacks, from another thread, once they have `text`: threads take a while to get where they
/// are to be seen.
std::string stacks_with(const std::string& text) {
  std::string all;
  std::thread([&] {
    for (int i = 0; i < 100 && all.find(text) == std::string::npos; ++i) all = all_stacks();
  }).join();
  return all;
}

}  // namespace

TEST_CASE("stacks: every thread tells where it is, even one that hangs") {
  if (thread_sanitized) skip_test("ThreadSanitizer hands on signals in functions of its own");
  prepare_stacks();
  std::mutex mutex;
  std::condition_variable woken;
  bool over = false;
  std::thread hanging([&] {
    ::pthread_setname_np(::pthread_self(), "hanging");
    std::unique_lock lock(mutex);
    woken.wait(lock, [&] { return over; });
  });
  const std::string all = stacks_with("pthread_cond_wait");
  std::string main;
  std::thread([&] { main = main_stack(); }).join();
  {
    const std::lock_guard lock(mutex);
    over = true;
  }
  woken.notify_all();
  hanging.join();
  CHECK_THAT(all, Contains("(hanging)\n") && Contains("pthread_cond_wait"));
  CHECK_THAT(all, Contains("(test_train)\n"));
  CHECK_THAT(main, Contains("(test_train)\n") && Contains("join") && !Contains("(hanging)"));
}

TEST_CASE("stacks: a thread that does not answer is told with what the kernel says") {
  prepare_stacks();
  std::atomic<int> state{0};
  std::thread deaf([&] {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
    ::pthread_setname_np(::pthread_self(), "deaf");
    state = 1;
    state.notify_all();
    state.wait(1);
  });
  state.wait(0);
  const std::string text = stacks_with("(deaf)\n  does not answer");
  state = 2;
  state.notify_all();
  deaf.join();
  CHECK_THAT(text, Contains("(deaf)\n  does not answer; in the kernel: "));
}

TEST_CASE(
    "stacks: who computes is not disturbed, and the main thread answers on a stack of its own") {
  prepare_stacks();
  std::atomic<bool> over{false}, computes{false};
  std::thread computing([&] {
    ::pthread_setname_np(::pthread_self(), "computing");
    computes = true;
    while (!over) continue;
  });
  while (!computes) continue;
  std::string text;
  std::thread([&] { text = all_stacks(); }).join();
  over = true;
  computing.join();
  CHECK_THAT(text, Contains("(computing)\n  computes"));
  stack_t stack{};
  REQUIRE(::sigaltstack(nullptr, &stack) == 0);
  CHECK((stack.ss_flags & SS_DISABLE) == 0);
  struct sigaction action = {};
  REQUIRE(::sigaction(SIGRTMIN + 5, nullptr, &action) == 0);
  CHECK((action.sa_flags & SA_ONSTACK) != 0);
}
