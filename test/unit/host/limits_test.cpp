#include "ringtrain/host/limits.hpp"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <functional>
#include <system_error>
#include <thread>

#include "support/catch.hpp"

using namespace ringtrain;
using namespace ringtrain::host;
using Catch::Contains;

namespace {

constexpr rlim_t most_processes = 1;

// What `work` ends with in a process whose user may start nothing more. Root would not be limited.
int without_threads(const std::function<void()>& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (::geteuid() == 0 && ::setuid(65534) != 0) ::_exit(1);
    const rlimit few{most_processes, most_processes};
    ::setrlimit(RLIMIT_NPROC, &few);
    work();
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

bool says(const Error& failure, const char* text) {
  return std::string(failure.what()).find(text) != std::string::npos;
}

}  // namespace

TEST_CASE("Limits: a thread that cannot start is told with the limit, its value and the cure") {
  const int code = without_threads([] {
    try {
      std::thread([] {}).join();
    } catch (const std::exception& failure) {
      const Error error = as_error(failure);
      if (says(error, "start a thread") && says(error, "`ulimit -u` allows this user 1: raise it"))
        ::_exit(static_cast<int>(error.code()));
    }
  });

  CHECK(code == static_cast<int>(Exit::limit));
}

TEST_CASE("Limits: what OpenMP ends the process for is told, and nothing else is") {
  const int code = without_threads([] {
    ::on_exit(
        [](int status, void*) {
          if (const auto failure = failure_of_exit(status);
              failure && says(*failure, "`ulimit -u`"))
            ::_exit(static_cast<int>(failure->code()));
        },
        nullptr);
    int team = 0;
#pragma omp parallel num_threads(7) reduction(+ : team)
    team += 1;
  });

  CHECK(code == static_cast<int>(Exit::limit));
  CHECK_FALSE(failure_of_exit(EXIT_FAILURE));
  CHECK_FALSE(failure_of_exit(EXIT_SUCCESS));
}

TEST_CASE("Limits: memory, open files and the size of files have their limits' values") {
  CHECK(as_error(std::bad_alloc()).code() == Exit::limit);
  CHECK(as_error(std::runtime_error("x")).code() == Exit::internal);
  CHECK(as_error(Error(Exit::data, "a", "b")).code() == Exit::data);
  const auto [error, resource, text] = GENERATE(table<int, int, std::string>(
      {{EMFILE, RLIMIT_NOFILE, "Too many open files; `ulimit -n` is 4096: raise it"},
       {EFBIG, RLIMIT_FSIZE, "File too large; `ulimit -f` is 4 KiB: raise it"},
       {EACCES, RLIMIT_FSIZE, "Permission denied"}}));
  rlimit before{};
  const auto of = static_cast<__rlimit_resource>(resource);
  REQUIRE(::getrlimit(of, &before) == 0);
  const rlimit limit{4096, before.rlim_max};

  REQUIRE(::setrlimit(of, &limit) == 0);
  const std::string reason = reason_of(error);
  ::setrlimit(of, &before);

  CHECK(reason == text);
}
