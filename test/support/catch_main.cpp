// The main() of all test programs. It ends with 0, with 1 after any failure, or with 77 where every
// case was skipped: CTest takes 77 for skipped, and Catch2 itself would end with the number of
// failures, or with a code of its own.
#define CATCH_CONFIG_RUNNER
#include "support/catch.hpp"

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_session.hpp>
#include <catch2/catch_test_case_info.hpp>
#include <catch2/reporters/catch_reporter_event_listener.hpp>
#include <catch2/reporters/catch_reporter_registrars.hpp>
#endif
#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

constexpr int some_failed = 1, all_skipped = 77;

struct Seen {
  int cases = 0, skipped = 0, half_skipped = 0;
  bool skips = false;  // the case that runs now
  std::string name;
} seen;

#if __has_include(<catch2/catch_all.hpp>)
using ListenerBase = Catch::EventListenerBase;
#else
using ListenerBase = Catch::TestEventListenerBase;
#endif

struct SkipListener : ListenerBase {
  using ListenerBase::ListenerBase;

  void testCaseStarting(const Catch::TestCaseInfo& info) override {
    seen.skips = false;
    seen.name = info.name;
  }
  void testCaseEnded(const Catch::TestCaseStats& stats) override {
    ++seen.cases;
    if (!seen.skips) return;
    ++seen.skipped;
    if (stats.totals.assertions.passed + stats.totals.assertions.failed == 0) return;
    ++seen.half_skipped;
    std::printf("%s: a part was skipped after or beside checks; make it a test case of its own\n",
                seen.name.c_str());
  }
};
CATCH_REGISTER_LISTENER(SkipListener)

}  // namespace

void skip_test(std::string_view why) {
  std::printf("skipped: %.*s\n", static_cast<int>(why.size()), why.data());
  std::fflush(stdout);
  seen.skips = true;
#if __has_include(<catch2/catch_all.hpp>)
  SKIP();
  std::abort();  // it has thrown
#else
  throw Catch::TestFailureException();  // ends the case, and counts as no failure by itself
#endif
}

int main(int argc, char** argv) {
  const int failures = Catch::Session().run(argc, argv);
  if (seen.half_skipped != 0) return some_failed;
  if (seen.cases > 0 && seen.skipped == seen.cases) return all_skipped;
  // Catch2 2 is content with a name that nothing has.
  const bool lists = argc > 1 && std::string_view(argv[1]).starts_with("-");
  if (seen.cases == 0 && !lists) return some_failed;
  return failures == 0 ? EXIT_SUCCESS : some_failed;
}
