#include "train/lone_speed.hpp"

#include <fstream>

#include "support/catch.hpp"
#include "support/temporary_folder.hpp"

using namespace ringtrain;

namespace {

constexpr const char* ours = R"({"batch":64,"model":"mlp"})";

LoneSpeed speed() {
  LoneSpeed speed{{123.5, 2.25}, {}, 1'790'000'000};
  speed.phases[Phase::backward] = 0.25;
  return speed;
}

}  // namespace

TEST_CASE("lone speed: what is kept is found again") {
  const TemporaryFolder folder;
  REQUIRE(LoneSpeeds(folder.path() / "new", ours).keep(speed()) == "");

  const auto found = LoneSpeeds(folder.path() / "new", ours).find();

  REQUIRE(found);
  CHECK(found->examples_per_second.median == 123.5);
  CHECK(found->examples_per_second.deviation == 2.25);
  CHECK(found->phases[Phase::backward] == 0.25);
  CHECK(found->measured == 1'790'000'000);
}

TEST_CASE("lone speed: another configuration's is not found, also under the same name") {
  const TemporaryFolder folder;
  const LoneSpeeds here(folder.path(), ours);
  const LoneSpeeds other(folder.path(), R"({"batch":32,"model":"mlp"})");
  REQUIRE(here.keep(speed()) == "");

  CHECK_FALSE(other.find());
  std::filesystem::copy_file(here.file(), other.file());
  CHECK_FALSE(other.find());
}

TEST_CASE("lone speed: damaged files are passed over and replaced") {
  const TemporaryFolder folder;
  const LoneSpeeds speeds(folder.path(), ours);
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

TEST_CASE("lone speed: without a folder nothing is kept, and a folder that cannot be is told") {
  CHECK(LoneSpeeds("", ours).keep(speed()) == "");
  CHECK_FALSE(LoneSpeeds("", ours).find());
  CHECK(LoneSpeeds("/proc/nowhere", ours).keep(speed()) != "");
}
