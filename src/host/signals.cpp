#include "ringtrain/host/signals.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <ctime>
#include <span>
#include <thread>
#include <utility>

#include "ringtrain/base/error.hpp"
#include "ringtrain/base/file.hpp"
#include "ringtrain/host/launcher.hpp"

namespace ringtrain::host {
namespace {

// A signal handler can reach nothing but globals.
std::atomic<int> received{0}, save_wanted{0};  // without a lock: other threads read them

// An eventfd that can be read once `received` is set. It stays open: handlers do, too.
std::atomic<int> arrived{-1};

void announce() { ::eventfd_write(arrived, 1); }

// In seconds of a clock that only goes on, when `received` was set.
std::atomic<std::int64_t> received_at_s{0};

// systemd, scancel and `kill -- -GROUP` signal the ranks and mpirun, which hands it on: one wish.
constexpr std::int64_t same_wish_s = 3;

// SIGXCPU comes again each second that the CPU works behind the soft limit of `ulimit -t`.
constexpr std::array stopping = {SIGTERM, SIGINT, SIGHUP, SIGXCPU};
constexpr std::array taken = {SIGTERM, SIGINT, SIGHUP, SIGXCPU, SIGUSR1};

// As under nohup. SIGTERM and SIGINT count all the same: a shell ignores SIGINT for its background.
bool stays_ignored(int signal) {
  struct sigaction now = {};
  ::sigaction(signal, nullptr, &now);
  return (signal == SIGHUP || signal == SIGXCPU) && now.sa_handler == SIG_IGN;
}

// For how long a signal waits for the first step; 0: that is done.
std::atomic<unsigned> first_step_s{0};

extern "C" void remember(int signal) {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  if (received == 0) {
    received_at_s = now.tv_sec;  // before another thread's signal may ask
    received = signal;
    if (first_step_s > 0) ::alarm(first_step_s);
    announce();
  } else if (signal != SIGXCPU && now.tv_sec - received_at_s > same_wish_s) {
    ::signal(signal, SIG_DFL);
    ::raise(signal);
  }
}
extern "C" void want_save(int) { save_wanted = 1; }
extern "C" void end_before_first_step(int) {
  if (received == 0 || first_step_s == 0) return;
  offer_stderr(  // who reads it may stand still
      "train: the first step is not done some seconds after the signal to stop: this process "
      "ends, with nothing to save\n");
  ::_exit(128 + received);
}

void handle(int signal, void (*handler)(int), int flags) {
  struct sigaction action = {};
  action.sa_handler = handler;
  for (const int other : stopping) sigaddset(&action.sa_mask, other);
  action.sa_flags = SA_RESTART | SA_ONSTACK | flags;
  ::sigaction(signal, &action, nullptr);
}

// On the calling thread, and on those that it starts.
sigset_t mask(int how, std::span<const int> signals) {
  sigset_t set, before;
  sigemptyset(&set);
  for (const int signal : signals) sigaddset(&set, signal);
  ::pthread_sigmask(how, &set, &before);
  return before;
}

}  // namespace

void hold_save_signals() { mask(SIG_BLOCK, std::array{SIGUSR1}); }

SignalThread::SignalThread() {
  handle(SIGUSR1, want_save, 0);
  before_ = mask(SIG_BLOCK, taken);
  thread_ = std::thread([this] {
    ::prctl(PR_SET_NAME, "ringtrain-sig");
    mask(SIG_UNBLOCK, taken);
    ended_.acquire();
  });
}

SignalThread::~SignalThread() {
  ended_.release();
  thread_.join();
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

class StopSignals::Waiter {
 public:
  explicit Waiter(std::function<bool()> act)
      : act_(std::move(act)), launcher_(open_launcher()), thread_([this] { run(); }) {}
  ~Waiter() {
    ended_ = true;
    announce();
    thread_.join();
  }
  Waiter(const Waiter&) = delete;

 private:
  void run() {
    std::array<pollfd, 2> events{{{arrived, POLLIN, 0}, {launcher_.get(), POLLIN, 0}}};
    while (received == 0 && !ended_) {
      const bool happened = ::poll(events.data(), events.size(), -1) > 0;  // passes over -1
      if (happened && events[1].revents != 0 && received == 0) remember(SIGTERM);
    }
    while (!ended_ && !act_()) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }

  std::function<bool()> act_;
  const FileDescriptor launcher_;  // none: it does not tell of its end
  std::atomic<bool> ended_{false};
  std::thread thread_;
};

int stop_signal() { return received; }

StopSignals::StopSignals(unsigned patience_s) {
  eventfd_t none = 0;
  if (arrived < 0)
    arrived = check_errno(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "eventfd");
  else
    ::eventfd_read(arrived, &none);
  handle(SIGALRM, end_before_first_step, 0);
  mask(SIG_UNBLOCK, std::array{SIGALRM});  // which the launcher may have blocked
  first_step_s = patience_s;
  for (const int signal : stopping)
    if (!stays_ignored(signal)) handle(signal, remember, 0);
  handle(SIGUSR1, want_save, 0);
  if (received != 0) ::alarm(patience_s);
}

StopSignals::~StopSignals() {
  first_step_done();
  handle(SIGUSR1, SIG_IGN, 0);
  received = 0;
  save_wanted = 0;
}

std::shared_ptr<StopSignals::Waiter> StopSignals::call_at_stop(std::function<bool()> act) {
  return std::make_shared<Waiter>(std::move(act));
}

void StopSignals::first_step_done() {
  if (first_step_s.exchange(0) > 0) ::alarm(0);
}

bool StopSignals::take_save() {
  return save_wanted.exchange(0) != 0;  // one that comes just before is part of this one
}

StepRequest agreed_request(double stops, double signalled, double signals) {
  if (stops == 0) return {false, signalled > 0 ? SIGUSR1 : 0};
  if (signalled == 0 || signals == SIGUSR1 * signalled) return {true, 0};
  if (signals >= save_refused) return {true, save_refused};
  for (const int signal : {SIGINT, SIGHUP, SIGXCPU})
    if (signals == signal * signalled) return {true, signal};
  return {true, SIGTERM};
}

}  // namespace ringtrain::host
