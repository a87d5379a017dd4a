#pragma once
#include <sys/types.h>

#include <optional>
#include <string>

#include "ringtrain/base/file.hpp"

namespace ringtrain::io {

/// The helper process that writes checkpoints. It is a process and not a thread because a thread in
/// a stuck file system call makes its whole process unkillable, and with it the job. It must be
/// forked before MPI, CUDA and any thread exist; it holds no file of the trainer but one socket.
///
/// With it a fork server is forked, as small a process: once the trainer has libraries and threads,
/// it can fork no helper any more, but the fork server still can, as often as one dies. It does
/// nothing else, and ends with the trainer.
///
/// Where the trainer is killed, the helper saves what was handed over, for no longer than
/// WriterOptions::last_save_timeout_s, writes last-save.txt and ends; it has a session of its own.
class WriterProcess {
 public:
  static WriterProcess start();
  /// Idle: for the ranks that write no checkpoints.
  WriterProcess() = default;
  WriterProcess(WriterProcess&& other) noexcept;
  WriterProcess& operator=(WriterProcess&& other) noexcept;
  /// Ends the helper, killing it if it does not go by itself, and the fork server; waits 1.5
  /// seconds at most.
  ~WriterProcess();

  bool idle() const { return socket_.get() < 0; }
  /// 0: gone, or started by the fork server, which has not said so yet.
  pid_t pid() const { return pid_; }
  pid_t fork_server_pid() const { return server_pid_; }
  /// Ends the helper without waiting for that.
  void kill();
  int socket() const { return socket_.get(); }
  /// Whether what ended() tells is that the fork server could make no process for it.
  bool could_not_start() const { return could_not_start_; }
  /// Kills what is left of the helper and asks the fork server for another one, whose socket() is
  /// there at once. Never waits. Returns why there is none, if so. Throws Error where this process
  /// has no descriptors left for it.
  std::optional<std::string> restart();
  /// How the helper ended ("was killed by signal 9 (Killed)"), once its socket says so; nothing
  /// while the kernel does not know yet.
  std::optional<std::string> ended();
  /// The same, but waits for the kernel, one second at most. Throws std::system_error with EAGAIN
  /// where it could not start its threads.
  std::string ending();
  /// How the fork server ended; told once.
  std::optional<std::string> fork_server_ended();

 private:
  void hear_fork_server();
  bool reap(int milliseconds);

  FileDescriptor socket_, server_;
  pid_t pid_ = 0, server_pid_ = 0;  // 0: none, or already reaped
  std::optional<std::string> ended_;
  bool could_not_start_ = false;
};

}  // namespace ringtrain::io
