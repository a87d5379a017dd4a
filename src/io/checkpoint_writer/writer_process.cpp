#include "ringtrain/io/checkpoint_writer/writer_process.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "io/checkpoint_writer/writer_protocol.hpp"
#include "io/checkpoint_writer/writer_server.hpp"
#include "io/lease/quiet_thread.hpp"
#include "ringtrain/base/error.hpp"

namespace ringtrain::io {
namespace {

constexpr int reap_pause_ms = 2;

// Of the kernel's interface, ioprio_set(2). <linux/ioprio.h> of Linux 6.1.192 is no C++: it calls a
// parameter `class`.
constexpr int one_process = 1, best_effort = 2, class_shift = 13, last_of_class = 7;

// The trainer decides what a signal to the job means. SIGXFSZ: write() then reports the limit.
void ignore_signals() {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGPIPE, SIGXFSZ, SIGXCPU})
    std::signal(signal, SIG_IGN);
}

void close_all(unsigned first, unsigned last) {
  if (first > last || ::syscall(SYS_close_range, first, last, 0) == 0) return;
  constexpr unsigned enough = 65535;  // kernels before 5.9 close one by one
  for (unsigned fd = first; fd <= std::min(last, enough); ++fd) ::close(static_cast<int>(fd));
}

// Whatever else the trainer had open must not outlive it here: its launcher waits for pipes to
// close.
void keep_only(int socket) {
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  for (const int standard : {0, 1, 2}) ::dup2(null, standard);
  close_all(3, static_cast<unsigned>(socket) - 1);
  close_all(static_cast<unsigned>(socket) + 1, ~0u);
}

// Training goes first, but a save must make progress where all cores are busy. Beside two ranks of
// resnet50 on two cores, 205 MB are durable after 0.6 s; at nice 0 after 0.2 s, but the step beside
// it takes 0.14 s longer; at nice 19 after 0.9 to 2.2 s, and beside four processes that never wait
// after 8 s and more, which is too late for a last save (nice 10: 3.5 s).
void step_back() {
  [[maybe_unused]] const int now = ::nice(10);
  ::syscall(SYS_ioprio_set, one_process, 0, best_effort << class_shift | last_of_class);
  cpu_set_t all;
  std::memset(&all, 0xff, sizeof all);
  ::sched_setaffinity(0, sizeof all, &all);  // not on the core the launcher bound the trainer to
}

sigset_t death_signal() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR2);
  return set;
}

/// Gives the saves under way their limit once the trainer dies. A thread does it that waits for
/// nothing else: the main one may be in fsync, in which a signal reaches it too late.
class TrainerWatch {
 public:
  TrainerWatch(pid_t trainer, LastSaveLimits limits)
      : trainer_(trainer), limits_(std::move(limits)) {}

  void start() {
    quiet_thread([this] { await_death(); }).detach();
  }

  void prepare(const LastSaveLimits& limits) {
    const std::scoped_lock lock(mutex_);
    limits_ = limits;
    if (is_alone_ && limits.timeout_s > 0) outlive(limits.begins);
  }

 private:
  void await_death() {
    ::prctl(PR_SET_NAME, "ringtrain-watch");
    const sigset_t set = death_signal();
    for (int signal = 0; ::getppid() == trainer_;) ::sigwait(&set, &signal);
    const std::scoped_lock lock(mutex_);
    if (limits_.timeout_s == 0) ::_exit(0);
    is_alone_ = true;
    outlive(true);
  }

  // The limit comes first, as the disk may hang. Its signal ends this process.
  void outlive(bool begins) {
    constexpr double longest_s = 1e6;
    if (begins) ::alarm(static_cast<unsigned>(std::ceil(std::min(limits_.timeout_s, longest_s))));
    if (limits_.lock_file < 0) return;
    [[maybe_unused]] const ssize_t written =
        ::pwrite(limits_.lock_file, limits_.lock_text.data(), limits_.lock_text.size(), 0);
  }

  const pid_t trainer_;
  std::mutex mutex_;
  LastSaveLimits limits_;
  bool is_alone_ = false;
};

// In a session of its own: who kills the trainer's process group, as mpirun does, leaves it alone.
[[noreturn]] void be_writer(int socket, pid_t trainer, const LastSaveLimits& at_first) {
  ignore_signals();
  std::signal(SIGALRM, SIG_DFL);  // whoever started the job may have ignored or blocked it
  std::signal(SIGUSR2, SIG_DFL);
  sigset_t set = death_signal();
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  sigemptyset(&set);
  sigaddset(&set, SIGALRM);
  ::sigprocmask(SIG_UNBLOCK, &set, nullptr);
  ::prctl(PR_SET_PDEATHSIG, SIGUSR2);
  ::setsid();
  ::prctl(PR_SET_NAME, "ringtrain-writer");
  keep_only(socket);
  step_back();
  TrainerWatch watch(trainer, at_first);
  try {
    watch.start();
    serve_trainer(socket, [&](const LastSaveLimits& limits) { watch.prepare(limits); });
  } catch (const std::exception& failure) {
    ::_exit(static_cast<int>(lacks_thread(failure) ? Exit::limit : Exit::internal));
  } catch (...) {
    ::_exit(static_cast<int>(Exit::internal));
  }
  ::_exit(0);  // no exit handlers of the trainer's libraries
}

[[noreturn]] void be_first_writer(int socket, pid_t trainer) { be_writer(socket, trainer, {}); }

// What the dead one had not saved waits in the socket, also once the trainer is gone.
[[noreturn]] void be_next_writer(int socket, pid_t trainer) {
  constexpr double to_begin_s = 30;  // then serve_trainer() knows the limit
  be_writer(socket, trainer, {.timeout_s = to_begin_s, .lock_file = -1, .lock_text = ""});
}

// The writer is a child of the trainer, as the first one is: it hears of the trainer's death, and
// the trainer of its. With fork() it would be one of the fork server.
void start_writer(int server, const Received& request, pid_t trainer) {
  Message answer{.kind = Message::Kind::started};
  const long child =
      ::syscall(SYS_clone, CLONE_PARENT | SIGCHLD, nullptr, nullptr, nullptr, nullptr);
  if (child == 0) be_next_writer(request.descriptors.at(0).get(), trainer);
  if (child > 0)
    answer.bytes = static_cast<std::uint64_t>(child);
  else
    answer.code = errno;
  send_message(server, answer, Wait::yes);
}

// In the trainer's session: what kills the trainer's process group may kill this, too.
[[noreturn]] void be_fork_server(int socket, pid_t trainer) {
  ignore_signals();
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != trainer) ::_exit(0);
  ::prctl(PR_SET_NAME, "ringtrain-fork");
  keep_only(socket);
  try {
    for (;;) start_writer(socket, *receive_message(socket, Wait::yes), trainer);
  } catch (...) {
    ::_exit(0);  // the trainer is gone
  }
}

struct SocketPair {
  FileDescriptor ours, theirs;
};

SocketPair socket_pair() {
  std::array<int, 2> ends{};
  check_errno(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()), "socketpair");
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

pid_t fork_into(void (*be)(int, pid_t), const SocketPair& sockets, const char* what) {
  const pid_t trainer = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) throw std::system_error(errno, std::generic_category(), what);
  if (child == 0) be(sockets.theirs.get(), trainer);
  return child;
}

constexpr const char* no_thread_left = "could not start a thread";

std::string how_ended(int status) {
  if (WIFSIGNALED(status))
    return fmt::format("was killed by signal {} ({})", WTERMSIG(status),
                       ::strsignal(WTERMSIG(status)));
  if (WEXITSTATUS(status) == static_cast<int>(Exit::limit)) return no_thread_left;
  return fmt::format("ended with exit code {}", WEXITSTATUS(status));
}

// Nothing while it lives; of a process that is no child any more, no exit code is known.
std::optional<std::string> reaped(pid_t& pid) {
  int status = 0;
  const pid_t found = ::waitpid(pid, &status, WNOHANG);
  if (found == 0) return std::nullopt;
  pid = 0;
  return found > 0 ? how_ended(status) : "ended";
}

}  // namespace

WriterProcess WriterProcess::start() {
  SocketPair server = socket_pair(), writer = socket_pair();
  WriterProcess started;
  started.server_pid_ = fork_into(be_fork_server, server, "fork of the fork server");
  started.server_ = std::move(server.ours);
  started.pid_ = fork_into(be_first_writer, writer, "fork of the checkpoint writer");
  started.socket_ = std::move(writer.ours);
  return started;
}

WriterProcess::WriterProcess(WriterProcess&& other) noexcept { *this = std::move(other); }

WriterProcess& WriterProcess::operator=(WriterProcess&& other) noexcept {
  std::swap(socket_, other.socket_);
  std::swap(server_, other.server_);
  std::swap(pid_, other.pid_);
  std::swap(server_pid_, other.server_pid_);
  std::swap(ended_, other.ended_);
  std::swap(could_not_start_, other.could_not_start_);
  return *this;
}

WriterProcess::~WriterProcess() {
  hear_fork_server();
  socket_ = {};
  server_ = {};
  if (server_pid_ != 0) {
    ::kill(server_pid_, SIGKILL);
    ::waitpid(server_pid_, nullptr, 0);  // it is never in a system call for long
  }
  if (reap(1000)) return;
  ::kill(pid_, SIGKILL);
  reap(500);  // in a stuck system call even that takes no effect: leave it to init
}

void WriterProcess::kill() {
  hear_fork_server();
  if (pid_ != 0) ::kill(pid_, SIGKILL);
}

std::optional<std::string> WriterProcess::restart() {
  constexpr const char* no_server = "the fork server, which starts them, is gone, too";
  kill();
  if (server_.get() < 0) return no_server;
  SocketPair sockets = socket_pair();
  const std::array theirs = {sockets.theirs.get()};
  if (!send_message(server_.get(), {.kind = Message::Kind::start}, Wait::no, theirs)) {
    if (!is_short_of_memory(errno)) return no_server;
    throw Error("start of a checkpoint writer", std::generic_category().message(errno));
  }
  socket_ = std::move(sockets.ours);
  pid_ = 0;
  ended_.reset();
  could_not_start_ = false;
  return std::nullopt;
}

void WriterProcess::hear_fork_server() {
  if (server_.get() < 0) return;
  try {
    while (const auto answer = receive_message(server_.get(), Wait::no)) {
      pid_ = static_cast<pid_t>(answer->message.bytes);
      ended_.reset();  // of one that was given up
      could_not_start_ = pid_ == 0;
      if (could_not_start_)
        ended_ = "could not be started: " + std::generic_category().message(answer->message.code);
    }
  } catch (const PeerGone&) {
    server_ = {};
  }
}

std::optional<std::string> WriterProcess::fork_server_ended() {
  hear_fork_server();
  if (server_.get() >= 0 || server_pid_ == 0) return std::nullopt;
  return reaped(server_pid_);
}

bool WriterProcess::reap(int milliseconds) {
  for (int waited = 0; !ended(); waited += reap_pause_ms) {
    if (pid_ == 0 || waited >= milliseconds) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(reap_pause_ms));
  }
  return pid_ == 0;
}

std::optional<std::string> WriterProcess::ended() {
  hear_fork_server();
  if (pid_ != 0 && !ended_) ended_ = reaped(pid_);
  return ended_;
}

std::string WriterProcess::ending() {
  reap(1000);
  if (ended() == no_thread_left)
    throw std::system_error(EAGAIN, std::generic_category(), "checkpoint writer process");
  return ended().value_or("closed its connection");
}

}  // namespace ringtrain::io
