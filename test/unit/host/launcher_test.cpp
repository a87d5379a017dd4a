#include "ringtrain/host/launcher.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <functional>

#include "ringtrain/base/clock.hpp"
#include "support/catch.hpp"

using namespace ringtrain;
using namespace ringtrain::host;
using namespace std::chrono_literals;

namespace {

// What `run` returns is the process's exit code.
pid_t started(const std::function<int()>& run) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) ::_exit(run());
  return child;
}

int wait_status(pid_t process) {
  int status = 0;
  REQUIRE(::waitpid(process, &status, 0) == process);
  return status;
}

void wait_for_all() {
  while (::wait(nullptr) > 0) {
  }
}

}  // namespace

TEST_CASE("launcher: what ends by itself gets no signal") {
  const pid_t launcher = started([] {
    ::usleep(200'000);
    return 7;
  });
  end_launcher(launcher, 60s);
  const int status = wait_status(launcher);
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 7));
  Stopwatch watch;
  wait_for_all();  // whoever waited for it ends with it
  CHECK(watch.lap() < 30);
}

TEST_CASE("launcher: what does not end in time is killed") {
  const pid_t launcher = started([=] {
    ::sleep(100);
    return 0;
  });
  Stopwatch watch;
  end_launcher(launcher, 300ms);
  const int status = wait_status(launcher);
  CHECK(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGKILL);
  CHECK(watch.lap() >= 0.29);
  wait_for_all();
}

TEST_CASE("launcher: a process that is not there is nothing to end") {
  const pid_t gone = started([] { return 0; });
  wait_status(gone);
  end_launcher(gone, 0s);
  CHECK(::wait(nullptr) == -1);  // nobody was left behind for it
}

TEST_CASE("launcher: more ranks than cores are told so to mpirun, which binds none") {
  const std::vector<std::string> command{"train", "--lr", "1"};

  CHECK(mpirun_command("/bin/mpirun", 2, 2, command) ==
        std::vector<std::string>{"/bin/mpirun", "-np", "2", "--bind-to", "none", "train", "--lr",
                                 "1"});
  CHECK(mpirun_command("m", 3, 2, command)[6] == ":OVERSUBSCRIBE");
}

TEST_CASE("launcher: ranks get the time that the user gives them") {
  CHECK(time_to_kill_ranks() == 1s);
  ::setenv("OMPI_MCA_odls_base_sigkill_timeout", "5", 1);
  CHECK(time_to_kill_ranks() == 5s);
  ::setenv("OMPI_MCA_odls_base_sigkill_timeout", "soon", 1);
  CHECK(time_to_kill_ranks() == 1s);
  ::unsetenv("OMPI_MCA_odls_base_sigkill_timeout");
}
