#include "allreduce/mpi/abort.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include "support/catch.hpp"

using namespace ringtrain;
using namespace ringtrain::allreduce;
using namespace std::chrono_literals;

TEST_CASE("report_delay: lower hosts go first, by enough for the abort to arrive") {
  CHECK(report_delay(0) == 0ms);
  for (int host = 1; host <= 10; ++host)
    CHECK(report_delay(host) - report_delay(host - 1) == 300ms);
}

TEST_CASE("report_delay: stays within what the waiting ranks allow") {
  CHECK(report_delay(1000) == report_delay(10));
  CHECK(report_delay(1000) <= 3s);
}

TEST_CASE("wait_to_report: the first rank of a host reports, and is remembered when it has gone",
          "[waits]") {
  const int file = ::memfd_create("word", MFD_CLOEXEC);
  const SharedWord mine = share_word(file);
  {
    const SharedWord of_another_rank = share_word(file);
    CHECK(wait_to_report(of_another_rank.get(), 0));
  }
  CHECK_FALSE(wait_to_report(mine.get(), 0));
  CHECK(wait_to_report(nullptr, 0));
  ::close(file);
}

TEST_CASE("Guard: what hangs is ended, what comes back in time is not") {
  std::atomic<int> ended{0};
  {
    const Guard guard(100ms, [&] { ++ended; });
    for (int i = 0; i < 3000 && ended == 0; ++i) std::this_thread::sleep_for(10ms);
    std::this_thread::sleep_for(200ms);  // in which it must not be ended again
  }
  CHECK(ended == 1);
  const auto begin = std::chrono::steady_clock::now();
  {
    const Guard guard(100s, [&] { ++ended; });
  }
  CHECK(ended == 1);
  CHECK(std::chrono::steady_clock::now() - begin < 50s);
}
