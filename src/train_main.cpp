#include <fcntl.h>
#include <fmt/core.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <exception>
#include <string>
#include <thread>

#include "ringtrain/allreduce/mpi/session.hpp"
#include "ringtrain/base/error.hpp"
#include "ringtrain/base/text.hpp"
#include "ringtrain/config/options.hpp"
#include "ringtrain/host/launcher.hpp"
#include "ringtrain/host/limits.hpp"
#include "ringtrain/host/signals.hpp"
#include "ringtrain/host/threads.hpp"
#include "ringtrain/io/checkpoint_writer/writer_process.hpp"
#include "ringtrain/io/dataset/dataset.hpp"
#include "ringtrain/monitor/watchdog/liveness.hpp"
#include "ringtrain/train/run.hpp"

using namespace ringtrain;

namespace {

// write() tells of the limit of `ulimit -f`. Where mpirun meets it, it hands its signal on, and
// hangs unless the ranks end by it.
void leave_file_limit_to_write() {
  struct sigaction action = {};
  action.sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK;
  action.sa_sigaction = [](int signal, siginfo_t* from, void*) {
    if (from->si_pid == ::getpid()) return;
    ::signal(signal, SIG_DFL);
    ::raise(signal);
  };
  ::sigaction(SIGXFSZ, &action, nullptr);
}

// A file that were opened as 0, 1 or 2 would get what is meant for the user.
void open_standard_streams() {
  for (int fd = 0; fd <= STDERR_FILENO; ++fd)
    if (::fcntl(fd, F_GETFD) < 0) static_cast<void>(::open("/dev/null", O_RDWR));
}

// Before MPI is up each rank fails by itself, usually alike: the first one speaks, and its end ends
// the others. Where only another rank fails, it speaks after a while.
int fail_before_mpi(const Error& failure, int rank, bool is_job) {
  if (rank > 0) std::this_thread::sleep_for(std::chrono::seconds(2));
  const std::string line =
      is_job ? fault_line(failure.code(), failure.kind(), rank, {}, failure.details()) : "";
  write_stderr(fmt::format("train: {}\n{}", failure.what(), line));
  return static_cast<int>(failure.code());
}

// In a process of its own, which can be left behind where even a kill does not end its call. It has
// no descriptor of this one's: pipes and locks stay open with it.
[[noreturn]] void read_once(const char* path) {
  ::syscall(SYS_close_range, 0u, ~0u, 0u);
  const int file = ::open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  struct stat about {};
  char byte = 0;
  const bool keeps_bytes = file >= 0 && ::fstat(file, &about) == 0 && S_ISREG(about.st_mode);
  if (keeps_bytes) static_cast<void>(::read(file, &byte, 1));
  ::_exit(0);
}

// The watchdog starts behind MPI, so the configuration's disk must be known to answer before.
void expect_answer_of(const std::string& path) {
  using namespace std::chrono;
  const std::chrono::duration<double> limit(monitor::limit_s(metrics::Phase::open, 0, 0));
  const pid_t reader = ::fork();
  if (reader == 0) read_once(path.c_str());
  if (reader < 0) return;  // it will be read without this
  for (auto start = steady_clock::now(); ::waitpid(reader, nullptr, WNOHANG) == 0;) {
    if (steady_clock::now() - start > limit) {
      ::kill(reader, SIGKILL);
      throw Error(
          Exit::stuck, "reading --config " + path,
          fmt::format("not done after {} s; its file system does not answer", limit.count()));
    }
    std::this_thread::sleep_for(milliseconds(1));
  }
}

// Rank 0 has connections to all ranks. Far beyond that, programs that close all they may have open
// take long.
void raise_file_limit() {
  constexpr rlim_t enough = 65536;
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur >= enough) return;
  files.rlim_cur = std::min(files.rlim_max, enough);
  ::setrlimit(RLIMIT_NOFILE, &files);
}

// OpenMP calls exit() where it cannot start a thread, and says neither which limit that is nor what
// the job has saved.
void explain_exit(int code, void* session) {
  if (const auto failure = host::failure_of_exit(code))
    static_cast<const allreduce::MpiSession*>(session)->abort(*failure);
}

// Before a line of threads or devices.
void expect_kinds_of_data(const config::Options& o) {
  io::expect_kind_of_data(o.data);
  if (!o.val_data.empty()) io::expect_kind_of_data(o.val_data);
}

// mpirun gives it to rank 0 alone.
void expect_whole_input(const allreduce::JobLaunch& launch) {
  if (launch.size > 1)
    throw Error(Exit::usage, "--config -",
                fmt::format("one of {} ranks has the standard input; name a file, or start by "
                            "train --ranks {}",
                            launch.size, launch.size));
}

// Returns where the ranks are there: started by a launcher, or this is the only one.
void start_ranks(const config::Command& command, const allreduce::JobLaunch& launch,
                 const sigset_t& signals) {
  const int ranks = command.options.ranks.value_or(launch.size);
  if (launch.mpi && ranks != launch.size)
    throw Error(Exit::usage, fmt::format("--ranks {}", ranks),
                fmt::format("mpirun or srun has started a job of {}; leave --ranks out",
                            plural(static_cast<std::size_t>(launch.size), "rank")));
  if (launch.mpi || ranks == 1) return;
  ::pthread_sigmask(SIG_SETMASK, &signals, nullptr);
  host::become_mpirun(ranks, command.rank_command);
}

int run_job(const config::Command& command) {
  const Stopwatch since_start;
  raise_file_limit();
  std::signal(SIGPIPE, SIG_IGN);  // a reader that goes away is no reason to stop training
  const host::ThreadPlan threads =
      host::plan_threads(host::detect_affinity(command.options.threads));
  host::apply_threads(threads);
  // The helper is forked before MPI and any thread; who is first is the launcher's word until then.
  const config::Options& o = command.options;
  const bool saves = (!o.checkpoint_dir.empty() || o.verify_resume) && !o.eval_only;
  const bool first = allreduce::launch_from_environment().rank == 0;
  io::WriterProcess writer = first && saves ? io::WriterProcess::start() : io::WriterProcess();
  const host::SignalThread signals;
  const allreduce::MpiSession session(command.options.interface);
  ::on_exit(explain_exit, const_cast<allreduce::MpiSession*>(&session));
  try {
    expects(first == (session.rank() == 0), "the launcher's rank 0 is MPI's");
    return train::run(command.options, threads, session, writer, since_start);
  } catch (const std::exception& failure) {
    session.abort(failure);
  }
}

}  // namespace

int main(int argc, char** argv) {
  int rank = 0;
  bool is_job = false;  // a command that is wrong starts none
  sigset_t signals;     // as mpirun would want them
  ::pthread_sigmask(SIG_SETMASK, nullptr, &signals);
  open_standard_streams();
  leave_file_limit_to_write();
  host::hold_save_signals();
  try {
    const allreduce::JobLaunch launch = allreduce::launch_from_environment();
    rank = launch.rank;
    const config::Command command = config::parse(argc, argv, [&](const std::string& path) {
      path == "-" ? expect_whole_input(launch) : expect_answer_of(path);
    });
    expect_kinds_of_data(command.options);
    if (!command.is_local()) start_ranks(command, launch, signals);
    is_job = !command.is_local();
    if (is_job) return run_job(command);
    if (rank == 0) train::run_local(command);
    return 0;
  } catch (const std::exception& caught) {
    const Error failure = host::as_error(caught);
    return fail_before_mpi(failure, rank, is_job || failure.code() == Exit::stuck);
  }
}
