#include <sys/resource.h>

#include <cmath>
#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "metrics/sinks/record_sink.hpp"
#include "ringtrain/base/program.hpp"
#include "support/catch.hpp"
#include "support/temporary_folder.hpp"
#include "unit/train/no_warning.hpp"
#include "unit/train/temporary_file.hpp"

using namespace ringtrain;
using namespace ringtrain::metrics;
using Catch::Matches;
using nlohmann::json;

namespace {

std::vector<json> records_in(const TemporaryFile& file) {
  std::vector<json> records;
  std::istringstream lines(file.text());
  for (std::string line; std::getline(lines, line);) records.push_back(json::parse(line));
  return records;
}

/// Without what each record has: when, and of which run.
json without_place(json record) {
  CHECK_THAT(record["time"].get<std::string>(),
             Matches("2[0-9]{3}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{3}Z"));
  CHECK(record["run"] == run_id());
  record.erase("time");
  record.erase("run");
  return record;
}

StepRecord written_step() {
  StepRecord record{.step = 240,
                    .epoch = 1.5,
                    .loss = 1.0 / 3,
                    .l2 = 0.25,
                    .epochs = 3,
                    .seconds_left = 17,
                    .learning_rate = 0.1,
                    .examples_per_second = 225.6,
                    .seconds_per_batch = 0.071,
                    .phases = {}};
  record.phases[Phase::communication] = 0.0011;
  return record;
}

}  // namespace

TEST_CASE("metrics: every record is one JSON object a line, with its kind and values") {
  const TemporaryFile file;
  const auto metrics = make_json_lines(file.path(), no_warning);

  metrics->write(StartRecord{
      .configuration = R"({"lr":0.1})", .build = "0.1", .ranks = 2, .hosts = {"a", "b"}});
  metrics->write(written_step());
  metrics->write(EvalRecord{.step = 240, .top1 = 0.75, .top5 = 1, .loss = 0.5, .examples = 2000});
  metrics->write(CheckpointRecord{
      .step = 200, .file = "d/s.h5", .bytes = 5, .seconds = 0.5, .stall_seconds = 0.25});
  metrics->write(EventRecord{.what = "save_failed", .rank = 3, .text = "disk \"full\"\n"});
  metrics->write(
      EndRecord{.steps = 300, .examples = 600, .seconds = 2, .examples_per_second = 300});

  auto r = records_in(file);
  for (json& record : r) record = without_place(record);
  REQUIRE(r.size() == 6);
  CHECK(
      r[0] ==
      json::parse(
          R"({"kind":"start","schema":2,"step":0,"configuration":{"lr":0.1},"build":"0.1","ranks":2,"hosts":["a","b"]})"));
  CHECK(
      r[1] ==
      json::parse(
          R"({"kind":"step","step":240,"epoch":1.5,"epochs":3.0,"seconds_left":17.0,"loss":0.333333333,"l2":0.25,"lr":0.1,
      "examples_per_second":225.6,"seconds_per_batch":0.071,"phases":{"data_wait":0.0,"copy":0.0,
      "forward":0.0,"backward":0.0,"comm_exposed":0.0011,"update":0.0,"checkpoint":0.0,"other":0.0}})"));
  CHECK(r[2] ==
        json::parse(
            R"({"kind":"eval","step":240,"top1":0.75,"top5":1.0,"loss":0.5,"examples":2000})"));
  CHECK(
      r[3] ==
      json::parse(
          R"({"kind":"checkpoint","step":200,"file":"d/s.h5","bytes":5,"seconds":0.5,"stall_seconds":0.25})"));
  CHECK(
      r[4] ==
      json::parse(
          R"({"kind":"event","step":200,"what":"save_failed","rank":3,"text":"disk \"full\"\n"})"));
  CHECK(
      r[5] ==
      json::parse(
          R"({"kind":"end","step":200,"steps":300,"examples":600,"seconds":2.0,"examples_per_second":300.0,"top1":null,"phases_of_ranks":[]})"));
}

TEST_CASE("metrics: how the ranks differ is told where it is known") {
  const TemporaryFile file;
  const auto metrics = make_json_lines(file.path(), no_warning);
  StepRecord record = written_step();
  record.ranks.emplace();
  record.ranks->phases[0] = {.min = 0.1, .median = 0.2, .max = 0.4, .max_rank = 3};
  metrics->write(record);

  const json ranks = records_in(file).at(0)["phases_of_ranks"];
  CHECK(ranks["data_wait"] == json::parse(R"({"min":0.1,"median":0.2,"max":0.4,"max_rank":3})"));
  CHECK(ranks.size() == ledger_phases.size() + 1);
  CHECK(ranks.contains("own_work"));
}

TEST_CASE("metrics: the share of the speed is there once it is known") {
  const TemporaryFile file;
  const auto metrics = make_json_lines(file.path(), no_warning);
  StepRecord step = written_step();
  metrics->write(step);
  step.speed = SpeedShare{.share = 0.6, .reference = 1892};
  metrics->write(step);

  const auto r = records_in(file);
  CHECK_FALSE(r.at(0).contains("speed_share"));
  CHECK(r.at(1)["speed_share"] == 0.6);
}

TEST_CASE("metrics: what sums reach is there where ranks are several") {
  const TemporaryFile file;
  const auto metrics = make_json_lines(file.path(), no_warning);
  StepRecord step = written_step();
  step.sums = SumsReached{1.5e8, 0.25};
  metrics->write(step);
  metrics->write(EndRecord{
      .steps = 1, .sums = SumsReached{1e8, 0.5}, .expected_step_s = 0.1, .efficiency = 0.75});
  metrics->write(ScalingForecast{.ranks = 2,
                                 .buckets = 3,
                                 .bytes = 4e6,
                                 .link = {0.001, 1e-8},
                                 .step = {.compute_s = 0.1, .exposed_s = 0.025, .sums_s = 0.04},
                                 .target = 0.9,
                                 .batch = 96});

  const auto r = records_in(file);
  REQUIRE(r.size() == 3);
  CHECK(r[0]["sums"] == json::parse(R"({"bus_bandwidth":1.5e8,"exposed_share":0.25})"));
  CHECK(r[1]["sums"]["bus_bandwidth"] == 1e8);
  CHECK(r[1]["expected_seconds_per_batch"] == 0.1);
  CHECK(r[1]["efficiency"] == 0.75);
  CHECK(without_place(r[2]) ==
        json::parse(R"({"kind":"links","step":240,"bytes":4e6,"buckets":3,"latency_seconds":0.001,
      "bus_bandwidth":1e8,"sums_seconds":0.04,"compute_seconds":0.1,"exposed_seconds":0.025,
      "expected_seconds_per_batch":0.125,"efficiency":0.8,"target":0.9,"batch_for_target":96})"));
}

TEST_CASE("metrics: how sums travel between hosts is there where it was measured") {
  const TemporaryFile file;
  const auto metrics = make_json_lines(file.path(), no_warning);
  const allreduce::RingTuning fixed{.largest_segment = 2048, .smallest_segment = 2048};
  metrics->write(ScalingForecast{
      .ring = allreduce::RingChoice{
          {fixed, 3, true},
          0.01,
          {4, 0.001, 1e8, 524288, {{allreduce::RingTuning(), 0.02}, {fixed, 0.01}}}}});

  const auto r = records_in(file);
  REQUIRE(r.size() == 1);
  CHECK(r[0]["ring"] == json::parse(R"({"hosts":4,"hop_seconds":0.001,"bytes_per_second":1e8,
      "block_bytes":8192,"sums_at_once":3,"sums_start":"late",
      "trial_bytes":524288,"trials":[
      {"block_bytes":31744,"adapts":true,"seconds":0.02},
      {"block_bytes":8192,"adapts":false,"seconds":0.01}]})"));
}

TEST_CASE("metrics: a loss has nine digits and may be no number") {
  const TemporaryFile file;
  const auto metrics = make_json_lines(file.path(), no_warning);
  StepRecord record = written_step();
  record.loss = 2.0 / 3;
  metrics->write(record);
  record.loss = std::nan("");
  metrics->write(record);

  CHECK_THAT(file.text(), Catch::Contains("\"loss\":0.666666667,"));
  CHECK(records_in(file)[1]["loss"].is_null());
}

TEST_CASE("metrics: a name that is not UTF-8 does not end the run") {
  const TemporaryFile file;
  const auto metrics = make_json_lines(file.path(), no_warning);

  metrics->write(EventRecord{.what = "save_failed", .rank = 0, .text = "caf\xe9"});

  CHECK(records_in(file).size() == 1);
}

TEST_CASE("metrics: a line is in the file when write returns") {
  const TemporaryFile file;
  const auto metrics = make_json_lines(file.path(), no_warning);

  metrics->write(written_step());

  CHECK(file.text().back() == '\n');
}

TEST_CASE("metrics: a resumed run appends, and starts a new line after a torn one") {
  const TemporaryFile whole("{\"kind\":\"step\"}\n"), torn("{\"kind\":\"st");
  make_json_lines(whole.path(), no_warning)->write(written_step());
  make_json_lines(torn.path(), no_warning)->write(written_step());

  CHECK(records_in(whole).size() == 2);
  CHECK_THAT(torn.text(), Catch::StartsWith("{\"kind\":\"st\n{\"kind\":\"step\""));
}

TEST_CASE("metrics: a file that cannot be opened is an error before training") {
  CHECK_THROWS_WITH(make_json_lines("/nowhere/at/all.jsonl", no_warning),
                    Catch::Contains("--metrics /nowhere/at/all.jsonl: No such file"));
}

TEST_CASE("metrics: a full disk is reported once and training goes on") {
  std::vector<std::string> warnings;
  const auto metrics =
      make_json_lines("/dev/full", [&](std::string_view text) { warnings.emplace_back(text); });

  for (int i = 0; i < 3; ++i) metrics->write(written_step());

  REQUIRE(warnings.size() == 1);
  CHECK_THAT(warnings[0], Catch::Contains("/dev/full: No space left on device") &&
                              Catch::Contains("training goes on"));
}

TEST_CASE("metrics: a file that is deleted is told once, a moved one is not") {
  const TemporaryFolder folder;
  const auto path = folder.path() / "m.jsonl", moved = folder.path() / "moved";
  std::vector<std::string> warnings;
  const auto metrics =
      make_json_lines(path, [&](std::string_view text) { warnings.emplace_back(text); });
  std::filesystem::rename(path, moved);
  metrics->write(written_step());
  CHECK(warnings.empty());

  std::filesystem::remove(moved);
  for (int i = 0; i < 3; ++i) metrics->write(written_step());

  REQUIRE(warnings.size() == 1);
  CHECK(warnings[0] == "--metrics " + path.string() +
                           ": the file was deleted; training goes on, its records are lost");
}

TEST_CASE("metrics: a file that may not grow is told with its limit, and ends with a whole line") {
  const TemporaryFile file;
  std::vector<std::string> warnings;
  const auto metrics =
      make_json_lines(file.path(), [&](std::string_view text) { warnings.emplace_back(text); });
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  const rlimit small{1024, before.rlim_max};

  REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
  for (int i = 0; i < 10; ++i) metrics->write(written_step());
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);

  REQUIRE(warnings.size() == 1);
  CHECK_THAT(warnings[0], Catch::Contains("File too large; `ulimit -f` is 1 KiB: raise it"));
  CHECK(file.text().ends_with("}\n"));
  CHECK(records_in(file).size() > 1);
}
