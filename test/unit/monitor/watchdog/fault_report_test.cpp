#include "monitor/watchdog/fault_report.hpp"

#include <chrono>
#include <future>
#include <memory>
#include <string>

#include "ringtrain/base/clock.hpp"
#include "ringtrain/host/run_with_timeout.hpp"
#include "support/catch.hpp"

using namespace ringtrain;
using namespace ringtrain::monitor;
using Catch::Contains;
using Catch::StartsWith;

TEST_CASE("way on: says what is durable, where, and with which command it goes on") {
  config::Options options;
  CHECK_THAT(restart_hint(options, 0), Contains("nothing was saved") && Contains("test_train"));
  options.checkpoint_dir = "saves";
  CHECK_THAT(
      restart_hint(options, 240),
      StartsWith("the last durable checkpoint in saves is of step 240; to go on from it, start "
                 "all ranks again:\n"));
  CHECK_THAT(restart_hint(options, 0), StartsWith("to go on from the newest checkpoint in saves,"));
  options.resume.from = config::Resume::From::scratch;
  CHECK_THAT(restart_hint(options, 0), Contains("again with --resume auto instead"));
}

TEST_CASE("way on: names the file of this run where auto could take a later one") {
  config::Options options;
  options.checkpoint_dir = "saves";
  options.resume = GENERATE(config::Resume{config::Resume::From::scratch},
                            config::Resume{config::Resume::From::file, "old.h5"});

  CHECK_THAT(restart_hint(options, 240),
             Contains("again with --resume saves/step-0000000240.h5 instead:\n"));
  if (options.resume.from == config::Resume::From::file)
    CHECK_THAT(restart_hint(options, 0),
               StartsWith("to go on from old.h5, or from what was saved in saves since") &&
                   !Contains("--resume auto"));
}

TEST_CASE("fault report: work that hangs is not waited for") {
  const auto gate = std::make_shared<std::promise<void>>();
  const auto hangs = [gate] {
    gate->get_future().wait();
    return std::string("written");
  };
  Stopwatch watch;
  CHECK(host::run_with_timeout(std::chrono::milliseconds(20), hangs, "late") == "late");
  CHECK(watch.elapsed() < 5);
  gate->set_value();
  CHECK(host::run_with_timeout(
            std::chrono::seconds(30), [] { return std::string("in time"); }, "late") == "in time");
}
