#include <fmt/core.h>

#include <cstring>
#include <filesystem>
#include <string_view>
#include <vector>

#include "events.pb.h"
#include "metrics/sinks/record_sink.hpp"
#include "ringtrain/base/error.hpp"
#include "ringtrain/base/hash.hpp"
#include "support/catch.hpp"
#include "support/temporary_folder.hpp"
#include "unit/train/no_warning.hpp"
#include "unit/train/temporary_file.hpp"

using namespace ringtrain;
using namespace ringtrain::metrics;
using events::Event;

namespace {

namespace fs = std::filesystem;

/// A folder for event files that is there while the object is.
struct Folder {
  Folder() { fs::remove(path); }
  ~Folder() { fs::remove_all(path); }
  std::string path = TemporaryFile().path();

  std::vector<Event> events() const {
    std::vector<Event> all;
    for (const auto& entry : fs::directory_iterator(path)) {
      CHECK_THAT(entry.path().filename().string(), Catch::Contains("tfevents"));
      std::ifstream file(entry.path(), std::ios::binary);
      const std::string bytes{std::istreambuf_iterator<char>(file), {}};
      for (std::size_t at = 0; at < bytes.size();) {
        std::uint64_t length = 0;
        std::memcpy(&length, bytes.data() + at, sizeof length);
        const std::string data = bytes.substr(at + 12, length);
        CHECK(bytes.substr(at, length + 16) == tfrecord_frame(data));
        CHECK(all.emplace_back().ParseFromString(data));
        at += length + 16;
      }
    }
    return all;
  }
};

float value_of(const Event& event, const std::string& tag) {
  for (const events::Value& value : event.summary().value())
    if (value.tag() == tag) return value.simple_value();
  FAIL("no " << tag);
  return 0;
}

}  // namespace

TEST_CASE("tensorboard: a record is framed as TensorFlow frames it") {
  // what tensorboard.summary.writer.record_writer.RecordWriter writes for b"ring"
  const std::string framed = tfrecord_frame("ring");
  std::string hex;
  for (const char byte : framed) hex += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  CHECK(hex == "04000000000000004245520472696e67121c4bad");
}

TEST_CASE("tensorboard: each record is an event with its step and values") {
  const Folder folder;
  const auto board = make_tensorboard(folder.path, no_warning);
  StepRecord step{.step = 24, .epoch = 1.5, .loss = 0.5, .learning_rate = 0.1, .phases = {}};
  step.phases[Phase::communication] = 0.25;
  step.ranks.emplace();
  step.ranks->own_work = {.min = 0.125, .median = 0.25, .max = 0.5, .max_rank = 3};

  board->write(StartRecord{R"({"lr":0.1})", "b1", 2, {"a", "a"}, 20});
  board->write(step);
  board->write(CheckpointRecord{.step = 22, .bytes = 3'000'000, .stall_seconds = 0.5});
  board->write(EvalRecord{.step = 24, .top1 = 0.75});
  board->write(EventRecord{"save_failed", 1, "disk full"});
  board->write(EndRecord{});

  const std::vector<Event> events = folder.events();
  REQUIRE(events.size() == 8);
  CHECK(events[0].file_version() == "brain.Event:2");
  CHECK(events[1].session_log().status() == events::SessionLog::START);
  CHECK(events[1].step() == 21);  // what an earlier run wrote of step 20 stays
  CHECK_THAT(events[2].summary().value(0).tensor().string_val(0),
             Catch::Contains("| lr | `0.1` |"));
  CHECK(events[2].summary().value(0).metadata().plugin_data().plugin_name() == "text");
  CHECK(events[2].summary().value(1).tensor().string_val(0) == "2 ranks on a; build b1");
  CHECK(events[3].step() == 24);
  CHECK(value_of(events[3], "train/loss") == 0.5f);
  CHECK(value_of(events[3], "ledger/comm_exposed_ms") == 250.0f);
  CHECK(value_of(events[3], "ranks/own_work_max_ms") == 500.0f);
  CHECK(value_of(events[3], "ranks/own_work_max_rank") == 3.0f);
  CHECK(events[4].step() == 22);
  CHECK(value_of(events[4], "checkpoint/megabytes") == 3.0f);
  CHECK(value_of(events[5], "evaluation/top1") == 0.75f);
  CHECK(events[6].step() == 24);
  CHECK(events[6].summary().value(0).tensor().string_val(0) == "rank 1: disk full");
  CHECK(events[7].session_log().status() == events::SessionLog::STOP);
}

TEST_CASE("tensorboard: a folder that cannot be is an error before training") {
  const TemporaryFile file;
  CHECK_THROWS_WITH(make_tensorboard(file.path() + "/board", no_warning),
                    Catch::Contains("--tensorboard") && Catch::Contains("name a folder"));
}

TEST_CASE("tensorboard: a folder that is deleted is told once") {
  const TemporaryFolder folder;
  const std::string board = folder.path() / "board";
  std::vector<std::string> warnings;
  const auto sink =
      make_tensorboard(board, [&](std::string_view text) { warnings.emplace_back(text); });
  sink->write(EndRecord{});
  CHECK(warnings.empty());

  std::filesystem::remove_all(board);
  for (int i = 0; i < 3; ++i) sink->write(EndRecord{});

  REQUIRE(warnings.size() == 1);
  CHECK_THAT(warnings[0],
             Catch::Contains("--tensorboard " + board + ": its event file was deleted"));
}
