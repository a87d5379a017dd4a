#include "ringtrain/host/stack_trace.hpp"

#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <fmt/core.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cctype>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <vector>

#include "ringtrain/base/clock.hpp"
#include "ringtrain/base/error.hpp"
#include "ringtrain/base/text.hpp"

namespace ringtrain::host {

namespace {

constexpr long patience_ns = 200'000'000;
constexpr double most_stacks_s = 2;  // for all threads

// What a thread that is asked answers with. A signal handler can reach nothing but a global.
struct Answer {
  std::array<void*, 48> frames{};
  std::atomic<int> count{0};  // written behind the frames
  sem_t given{};
};
Answer answer;
std::mutex asking;            // one thread's question at a time
std::atomic<pid_t> asked{0};  // which thread; 0: none, one that comes too late writes nothing

int stack_signal() { return SIGRTMIN + 5; }

extern "C" void give_stack(int) {
  const int kept = errno;
  pid_t self = static_cast<pid_t>(::syscall(SYS_gettid));
  if (asked.compare_exchange_strong(self, 0)) {
    answer.count.store(::backtrace(answer.frames.data(), static_cast<int>(answer.frames.size())),
                       std::memory_order_release);
    ::sem_post(&answer.given);
  }
  errno = kept;
}

timespec in(long nanoseconds) {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  time.tv_nsec += nanoseconds;
  time.tv_sec += time.tv_nsec / 1'000'000'000;
  time.tv_nsec %= 1'000'000'000;
  return time;
}

bool wait_for_answer() {
  const timespec until = in(patience_ns);
  int result = 0;
  while ((result = ::sem_clockwait(&answer.given, CLOCK_MONOTONIC, &until)) != 0 &&
         errno == EINTR) {
  }
  return result == 0;
}

bool ask(pid_t thread) {
  asked = thread;
  if (::syscall(SYS_tgkill, ::getpid(), thread, stack_signal()) != 0) return false;
  if (wait_for_answer()) return true;
  if (pid_t same = thread; asked.compare_exchange_strong(same, 0)) return false;
  return wait_for_answer();  // it has begun to
}

std::string function_at(void* address) {
  Dl_info info{};
  if (::dladdr(address, &info) == 0 || info.dli_fname == nullptr) return "?";
  const std::string file = std::filesystem::path(info.dli_fname).filename().string();
  const auto offset = static_cast<char*>(address) - static_cast<char*>(info.dli_fbase);
  if (info.dli_sname == nullptr) return fmt::format("{}+{:#x}", file, offset);
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> name(
      abi::__cxa_demangle(info.dli_sname, nullptr, nullptr, &status), std::free);
  return fmt::format("{} ({}+{:#x})", name ? name.get() : info.dli_sname, file, offset);
}

std::string content(const std::string& file) {
  std::ifstream stream(file);
  std::string text;
  std::getline(stream, text);
  return printable(text);
}

// Where a handler does no harm. The main thread has a stack for it. Of the others, one that is in a
// system call (by number) is not in a matrix product, see use_signal_stack().
bool may_ask(pid_t thread, std::string_view system_call) {
  return thread == ::getpid() || (!system_call.empty() && std::isdigit(system_call.front()) != 0);
}

std::string stack_of(pid_t thread) {
  const std::string folder = fmt::format("/proc/self/task/{}/", thread);
  const std::string system_call = content(folder + "syscall");
  std::string text = fmt::format("thread {} ({})\n", thread, content(folder + "comm"));
  if (!may_ask(thread, system_call)) return text + "  computes, or waits for memory\n";
  const std::scoped_lock lock(asking);
  if (!ask(thread))
    return text + fmt::format("  does not answer; in the kernel: {}, system call {}\n",
                              content(folder + "wchan"), content(folder + "syscall"));
  constexpr int handler_frames = 2;  // give_stack() and the kernel's return from it
  const int frames = answer.count.load(std::memory_order_acquire);
  for (int i = handler_frames; i < frames; ++i)
    text += fmt::format("  {}\n", function_at(answer.frames[static_cast<std::size_t>(i)]));
  return text;
}

std::vector<pid_t> threads() {
  std::vector<pid_t> all;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task"))
    all.push_back(std::stoi(entry.path().filename().string()));
  std::ranges::sort(all);  // the main thread's number is the process's
  return all;
}

}  // namespace

void prepare_stacks() {
  use_signal_stack();
  check_errno(::sem_init(&answer.given, 0, 0), "sem_init");
  ::backtrace(answer.frames.data(), 1);  // loads the unwinder
  struct sigaction action = {};
  action.sa_handler = give_stack;
  action.sa_flags = SA_RESTART | SA_ONSTACK;
  check_errno(::sigaction(stack_signal(), &action, nullptr), "sigaction");
}

std::string all_stacks() try {
  std::string text;
  const pid_t self = static_cast<pid_t>(::syscall(SYS_gettid));
  Stopwatch watch;
  for (const pid_t thread : threads())
    if (thread != self && watch.elapsed() < most_stacks_s) text += stack_of(thread);
  return text;
} catch (const std::exception& failure) {
  return fmt::format("no stacks: {}\n", failure.what());
}

std::string main_stack() try {
  return stack_of(::getpid());
} catch (const std::exception& failure) {
  return fmt::format("no stack: {}\n", failure.what());
}

void use_signal_stack() {
  alignas(64) static std::array<std::byte, 256 << 10> memory;
  stack_t stack{};
  stack.ss_sp = memory.data();
  stack.ss_size = memory.size();
  ::sigaltstack(&stack, nullptr);
}

}  // namespace ringtrain::host
