#include "monitor/watchdog/fault_report.hpp"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <string>

#include "ringtrain/base/clock.hpp"
#include "ringtrain/host/run_with_timeout.hpp"
#include "support/catch.hpp"
#include "support/temporary_folder.hpp"

using namespace ringtrain;
using namespace ringtrain::monitor;
using Catch::Contains;
using Catch::StartsWith;

TEST_CASE("way on: says what is durable, where, and with which command it goes on") {
  config::Options options;
  const TemporaryFolder folder;
  const auto saves = folder.path() / "saves", moved = folder.path() / "moved";
  const std::string name = "step-0000000240.h5";
  std::filesystem::create_directory(saves);
  std::ofstream(saves / name).flush();
  FaultContext context;
  CHECK_THAT(restart_hint(options, 0, context),
             Contains("nothing was saved") && Contains("test_train"));
  options.checkpoint_dir = saves;
  context.resume_from(saves / name);
  CHECK_THAT(restart_hint(options, 240, context),
             StartsWith("the last durable checkpoint in " + saves.string() +
                        " is of step 240; to go on from it, start all ranks again:\n"));
  CHECK_THAT(restart_hint(options, 0, context),
             StartsWith("to go on from the newest checkpoint in " + saves.string() + ","));
  options.resume.from = config::Resume::From::scratch;
  CHECK_THAT(restart_hint(options, 0, context), Contains("again with --resume auto instead"));

  std::filesystem::rename(saves, moved);
  context.resume_from(moved / name);
  CHECK_THAT(
      restart_hint(options, 240, context),
      StartsWith("the last durable checkpoint is " + (moved / name).string()) &&
          Contains("again with --checkpoint-dir " + moved.string() + " --resume auto instead"));
  context.resume_from(saves / name);
  CHECK_THAT(
      restart_hint(options, 240, context),
      StartsWith("the last durable checkpoint is of step 240, but not in " + saves.string()));
  CHECK(context.resume().empty());
}

TEST_CASE("way on: names the file of this run where auto could take a later one") {
  config::Options options;
  const TemporaryFolder folder;
  options.checkpoint_dir = folder.path();
  FaultContext context;
  context.resume_from(folder.path() / "step-0000000240.h5");
  std::ofstream(context.resume()).flush();
  options.resume = GENERATE(config::Resume{config::Resume::From::scratch},
                            config::Resume{config::Resume::From::file, "old.h5"});

  CHECK_THAT(restart_hint(options, 240, context),
             Contains("again with --resume " + context.resume() + " instead:\n"));
  if (options.resume.from == config::Resume::From::file)
    CHECK_THAT(restart_hint(options, 0, context),
               StartsWith("to go on from old.h5, or from what was saved in " +
                          folder.path().string() + " since") &&
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
