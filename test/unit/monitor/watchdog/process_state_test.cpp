#include "ringtrain/monitor/watchdog/process_state.hpp"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "support/catch.hpp"

using namespace ringtrain;
using namespace ringtrain::monitor;

namespace {

// A child that computes, or waits, for ever.
class Child {
 public:
  explicit Child(bool computes) : id_(::fork()) {
    if (id_ != 0) return;
    while (computes) {
    }
    for (;;) ::pause();
  }
  ~Child() {
    ::kill(id_, SIGKILL);
    ::waitpid(id_, nullptr, 0);
  }
  pid_t id() const { return id_; }
  bool comes_to(ProcessState state) const {
    for (int i = 0; i < 500 && state_of(id_) != state; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return state_of(id_) == state;
  }

 private:
  const pid_t id_;
};

}  // namespace

TEST_CASE(
    "process state: one that is stopped is told from one that wants a CPU, and from one that "
    "waits") {
  const Child busy(true), idle(false);
  CHECK(busy.comes_to(ProcessState::runs));
  CHECK(idle.comes_to(ProcessState::waits));
  for (const Child* child : {&busy, &idle}) {
    ::kill(child->id(), SIGSTOP);
    CHECK(child->comes_to(ProcessState::stopped));
  }
  ::kill(busy.id(), SIGCONT);
  CHECK(busy.comes_to(ProcessState::runs));
}

TEST_CASE("process state: of one that is not named, or of another container, nothing is known") {
  ProcessName other = own_process();
  CHECK(state_of(other) == ProcessState::runs);
  ++other.of;
  CHECK(state_of(other) == ProcessState::unknown);
  CHECK(state_of(ProcessName{}) == ProcessState::unknown);
}

TEST_CASE("process state: one that has ended is gone, also while nobody has waited for it") {
  const Child child(false);
  CHECK(child.comes_to(ProcessState::waits));
  ::kill(child.id(), SIGKILL);
  CHECK(child.comes_to(ProcessState::gone));
  CHECK(state_of(pid_t{999'999'999}) == ProcessState::gone);
  ProcessName before = own_process();  // which had this process's id
  CHECK(before.started > 0);
  --before.started;
  CHECK(state_of(before) == ProcessState::gone);
}
