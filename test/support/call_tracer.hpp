#pragma once
#include <sys/types.h>

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>

namespace ringtrain {

/// A system call that a traced process is about to make.
struct SystemCall {
  long number = 0;
  std::array<std::uint64_t, 6> arguments{};
  pid_t process = 0;

  /// Where the file behind argument `i`, an open file, is; empty if it is none.
  std::string path(int i) const;
  /// The flags of that file, as of open().
  int flags(int i) const;
};

/// What becomes of a system call.
struct Fate {
  enum class Kind {
    as_usual,
    fail,     ///< not made; returns `value`, an errno
    shorten,  ///< made with its third argument, a length, at most `value`
    hang,     ///< never made: the process is stuck in it until it is killed
    kill,     ///< the process is killed instead
  };
  Kind kind = Kind::as_usual;
  std::uint64_t value = 0;

  static Fate fail(int error) { return {Kind::fail, static_cast<std::uint64_t>(error)}; }
};

/// Decides over every system call of a child process of one thread, by ptrace on a thread of its
/// own (x86-64).
class CallTracer {
 public:
  /// Is asked on the tracer's thread.
  using Judge = std::function<Fate(const SystemCall&)>;

  /// Whether this process may trace its children.
  static bool allowed();
  /// Traces from now on; `child` outlives the constructor.
  CallTracer(pid_t child, Judge judge);
  /// Kills the child if it still lives.
  ~CallTracer();
  CallTracer(const CallTracer&) = delete;

 private:
  void trace();
  /// At the entry into a call: what its result is to be replaced with, if at all.
  void enter();
  void leave();
  bool wait();

  pid_t child_;
  Judge judge_;
  Fate fate_;
  bool inside_ = false;
  std::thread thread_;
};

}  // namespace ringtrain
