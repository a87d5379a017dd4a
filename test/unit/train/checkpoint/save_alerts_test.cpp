#include "train/checkpoint/save_alerts.hpp"

#include "support/catch.hpp"

using namespace ringtrain;
using namespace ringtrain::train;
using Catch::Contains;

namespace {

using SaveKind = io::SaveEvent::Kind;

io::SaveEvent full_disk(std::uint64_t step, int free) {
  return {.kind = SaveKind::failed,
          .step = step,
          .text = "checkpoint of step " + std::to_string(step) + " not saved: full (" +
                  std::to_string(free) + " bytes are free)"};
}

io::SaveEvent save_event(SaveKind kind, std::uint64_t step, const std::string& text = "") {
  return {.kind = kind, .step = step, .text = text};
}

}  // namespace

TEST_CASE("Save trouble: a cause is told once, and its end once") {
  SaveAlerts saves(0);

  CHECK_THAT(
      saves.trouble(full_disk(10, 4096)),
      Contains("step 10 not saved: full (4096 bytes are free); there is no good checkpoint"));
  CHECK(saves.trouble(full_disk(20, 0)).empty());
  CHECK_THAT(saves.trouble(save_event(SaveKind::failed, 30, "Input/output error")),
             Contains("Input/output"));
  CHECK_THAT(saves.good(save_event(SaveKind::saved, 40)),
             Contains("works again") && Contains("step 40"));
  CHECK(saves.good(save_event(SaveKind::saved, 50)).empty());
  CHECK_THAT(saves.trouble(full_disk(60, 0)),
             Contains("; the last good checkpoint is of step 50, 0.0 s ago"));
}

TEST_CASE("Save trouble: a disk that stays slow is told of once, not at every save") {
  SaveAlerts saves(0);

  CHECK_FALSE(
      saves.trouble(save_event(SaveKind::slow, 10, "step 10 is not durable after 20 s")).empty());
  CHECK(saves.good(save_event(SaveKind::saved, 10)).empty());
  CHECK(saves.trouble(save_event(SaveKind::slow, 20, "step 20 is not durable after 21 s")).empty());
  CHECK(saves.good(save_event(SaveKind::saved, 20)).empty());
  CHECK_THAT(saves.good(save_event(SaveKind::saved, 30)), Contains("works again"));
}

TEST_CASE("Save trouble: the checkpoint that training went on from is a good one") {
  CHECK(SaveAlerts(120).last_good() ==
        "the last good checkpoint is of step 120, from which training went on");
}
