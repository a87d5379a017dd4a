#include "support/call_tracer.hpp"

#include <fcntl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <future>
#include <stdexcept>

namespace ringtrain {
namespace {

std::string proc(const SystemCall& call, const char* folder, int i) {
  return "/proc/" + std::to_string(call.process) + "/" + folder + "/" +
         std::to_string(static_cast<int>(call.arguments[static_cast<std::size_t>(i)]));
}

user_regs_struct registers_of(pid_t child) {
  user_regs_struct registers{};
  ::ptrace(PTRACE_GETREGS, child, nullptr, &registers);
  return registers;
}

}  // namespace

std::string SystemCall::path(int i) const {
  std::error_code none;
  return std::filesystem::read_symlink(proc(*this, "fd", i), none).string();
}

int SystemCall::flags(int i) const {
  std::ifstream info(proc(*this, "fdinfo", i));
  std::string name;
  int flags = 0;
  while (info >> name)
    if (name == "flags:") info >> std::oct >> flags;
  return flags;
}

bool CallTracer::allowed() {
  const pid_t child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  const bool can = ::ptrace(PTRACE_SEIZE, child, nullptr, nullptr) == 0;
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  return can;
}

CallTracer::CallTracer(pid_t child, Judge judge) : child_(child), judge_(std::move(judge)) {
  std::promise<bool> attached;
  thread_ = std::thread([&, this] {
    const bool seized = ::ptrace(PTRACE_SEIZE, child_, nullptr, PTRACE_O_TRACESYSGOOD) == 0 &&
                        ::ptrace(PTRACE_INTERRUPT, child_, nullptr, nullptr) == 0 && wait();
    if (seized) ::ptrace(PTRACE_SYSCALL, child_, nullptr, nullptr);
    attached.set_value(seized);
    if (seized) trace();
  });
  if (!attached.get_future().get()) {
    thread_.join();
    throw std::runtime_error("PTRACE_SEIZE");
  }
}

CallTracer::~CallTracer() {
  ::kill(child_, SIGKILL);
  thread_.join();
}

// Whether the child stopped; else it has ended.
bool CallTracer::wait() {
  int status = 0;
  return ::waitpid(child_, &status, __WALL) == child_ && WIFSTOPPED(status);
}

void CallTracer::trace() {
  int status = 0;
  while (::waitpid(child_, &status, __WALL) == child_ && WIFSTOPPED(status)) {
    long signal = 0;
    if (WSTOPSIG(status) == (SIGTRAP | 0x80)) {
      inside_ ? leave() : enter();
      inside_ = !inside_;
    } else if (status >> 16 == 0) {
      signal = WSTOPSIG(status);
    }
    ::ptrace(PTRACE_SYSCALL, child_, nullptr, signal);
  }
}

void CallTracer::enter() {
  user_regs_struct r = registers_of(child_);
  const auto number = static_cast<long>(r.orig_rax);
  fate_ = judge_({number, {r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9}, child_});
  if (fate_.kind == Fate::Kind::kill) ::kill(child_, SIGKILL);
  if (fate_.kind == Fate::Kind::fail) r.orig_rax = ~0ull;      // no such call
  if (fate_.kind == Fate::Kind::hang) r.orig_rax = SYS_pause;  // a traced stop would look like one
  if (fate_.kind == Fate::Kind::shorten) r.rdx = std::min<std::uint64_t>(r.rdx, fate_.value);
  ::ptrace(PTRACE_SETREGS, child_, nullptr, &r);
}

void CallTracer::leave() {
  if (fate_.kind != Fate::Kind::fail) return;
  user_regs_struct r = registers_of(child_);
  r.rax = ~fate_.value + 1;
  ::ptrace(PTRACE_SETREGS, child_, nullptr, &r);
}

}  // namespace ringtrain
