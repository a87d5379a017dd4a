#include "train/performance/past_runs.hpp"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>

#include "support/catch.hpp"
#include "support/temporary_folder.hpp"

using namespace ringtrain;
using namespace ringtrain::train;

namespace {

constexpr const char* ours = R"({"batch":64,"model":"mlp"})";

PastRun speed() {
  PastRun speed{{123.5, 2.25}, {}, 1'790'000'000};
  speed.phases[metrics::Phase::backward] = 0.25;
  return speed;
}

}  // namespace

TEST_CASE("kept speed: what is kept is found again") {
  const TemporaryFolder folder;
  REQUIRE(PastRuns(folder.path() / "new", "one-rank", ours).keep(speed()) == "");

  const auto found = PastRuns(folder.path() / "new", "one-rank", ours).find();

  REQUIRE(found);
  CHECK(found->examples_per_second.median == 123.5);
  CHECK(found->examples_per_second.deviation == 2.25);
  CHECK(found->phases[metrics::Phase::backward] == 0.25);
  CHECK(found->measured == 1'790'000'000);
}

TEST_CASE("kept speed: another configuration's is not found, also under the same name") {
  const TemporaryFolder folder;
  const PastRuns here(folder.path(), "one-rank", ours);
  const PastRuns other(folder.path(), "one-rank", R"({"batch":32,"model":"mlp"})");
  REQUIRE(here.keep(speed()) == "");

  CHECK_FALSE(other.find());
  std::filesystem::copy_file(here.file(), other.file());
  CHECK_FALSE(other.find());
}

TEST_CASE("kept speed: damaged files are passed over and replaced") {
  const TemporaryFolder folder;
  const PastRuns speeds(folder.path(), "one-rank", ours);
  CHECK_FALSE(speeds.find());
  for (const char* text : {"", "damaged", "[1]", R"({"format":1})",
                           R"({"format":1,"configuration":{"batch":64,"model":"mlp"},"deviation":0,
                               "examples_per_second":-5,"measured":1,"phases":{}})"}) {
    std::ofstream(speeds.file()) << text;
    CHECK_FALSE(speeds.find());
  }

  CHECK(speeds.keep(speed()) == "");
  CHECK(speeds.find());
}

TEST_CASE("kept speed: without a folder nothing is kept, and a folder that cannot be is told") {
  CHECK(PastRuns("", "run", ours).keep(speed()) == "");
  CHECK_FALSE(PastRuns("", "run", ours).find());
  CHECK(PastRuns("/proc/nowhere", "run", ours).keep(speed()) != "");
}

TEST_CASE("kept speed: of many configurations, the oldest are forgotten") {
  const TemporaryFolder folder;
  const auto of = [&](std::string_view kind, std::size_t i) {
    return PastRuns(folder.path(), kind, "{\"model\":" + std::to_string(i) + "}");
  };
  const auto now = std::filesystem::file_time_type::clock::now();
  REQUIRE(of("one-rank", 0).keep(speed()) == "");
  for (std::size_t i = 0; i < PastRuns::most_files; ++i) {
    REQUIRE(of("run", i).keep(speed()) == "");
    std::filesystem::last_write_time(of("run", i).file(),
                                     now - std::chrono::hours(PastRuns::most_files - i));
  }
  REQUIRE(of("run", PastRuns::most_files).keep(speed()) == "");

  CHECK_FALSE(of("run", 0).find());
  CHECK(of("run", 1).find());
  CHECK(of("run", PastRuns::most_files).find());
  CHECK(of("one-rank", 0).find());
}
