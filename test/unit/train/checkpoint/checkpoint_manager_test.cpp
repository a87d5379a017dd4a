#include <limits>
#include <thread>

#include "support/catch.hpp"
#include "train/checkpoint/sharded_checkpoints.hpp"
#include "unit/io/checkpoint/checkpoint_fixture.hpp"

using namespace ringtrain;
using namespace ringtrain::train;
using namespace std::chrono_literals;

namespace {

// A state that ranks share: complete when the test says so.
class Shared final : public Snapshotter {
 public:
  void prepare(std::span<const std::span<float>> targets) override { prepared += !targets.empty(); }
  void start(std::span<const std::span<float>> targets) override {
    (targets.empty() ? without_targets : with_targets) += 1;
    for (const std::span<float> target : targets) std::ranges::fill(target, value);
  }
  bool done() override {
    if (broken) throw Error("cudaEventQuery", "an illegal memory access was encountered");
    return complete;
  }
  void release() override { ++released; }
  bool together() const override { return true; }
  int steps_to_start() const override { return ahead; }
  std::string lateness() override { return "rank 1 is late"; }

  bool complete = true, broken = false;
  float value = 1;
  int ahead = 0;
  int prepared = 0, with_targets = 0, without_targets = 0, released = 0;
};

// Rank 0's, or another rank's, which hears what rank 0 says.
struct SavingRank {
  explicit SavingRank(bool first, bool heard = false)
      : process(first ? io::WriterProcess::start() : io::WriterProcess()),
        checkpoints(
            io::CheckpointWriter(process, directory, io::State(7).layout, {.run_id = "test"}), copy,
            io::State(7).metadata, {.steps = 10}, 1000,
            [this](const io::SaveEvent& event, double) { events.push_back(event); },
            [this, first, heard](bool mine) {
              said.push_back(mine);
              return first ? mine : heard;
            },
            0.2) {}
  // Of the kind, and waited for.
  bool told(io::SaveEvent::Kind kind, std::uint64_t step) {
    for (int i = 0; i < 400; ++i, std::this_thread::sleep_for(5ms)) {
      checkpoints.offer({999});
      for (const io::SaveEvent& event : events)
        if (event.kind == kind && event.step == step) return true;
    }
    return false;
  }

  io::TemporaryDirectory directory;
  io::WriterProcess process;
  Shared copy;
  std::vector<io::SaveEvent> events;
  std::vector<bool> said;
  ShardedCheckpointManager checkpoints;
};

}  // namespace

TEST_CASE("checkpoints: rank 0 prepares both slots before training, others nothing") {
  CHECK(SavingRank(true).copy.prepared == 2);
  CHECK(SavingRank(false).copy.prepared == 0);
}

TEST_CASE("checkpoints: rank 0 wants shards of due steps, and saves once they are there") {
  SavingRank rank(true);

  CHECK_FALSE(rank.checkpoints.wants({9}));
  CHECK(rank.checkpoints.wants({10}));
  rank.checkpoints.offer({10});
  CHECK(rank.copy.with_targets == 0);  // not by itself
  rank.copy.complete = false;
  rank.checkpoints.save_together({10});
  rank.checkpoints.offer({11});
  CHECK(rank.checkpoints.saving());
  CHECK_FALSE(rank.checkpoints.wants({20}));  // while that is under way
  rank.copy.complete = true;

  CHECK(rank.told(io::SaveEvent::Kind::saved, 10));
  CHECK(rank.checkpoints.wants({20}));
}

TEST_CASE("checkpoints: hosts in front of their GPUs ask for a save as many steps before") {
  SavingRank rank(true);
  rank.copy.ahead = 2;

  CHECK_FALSE(rank.checkpoints.wants({7}));
  CHECK(rank.checkpoints.wants({8}));
  CHECK_FALSE(rank.checkpoints.wants({9}));
  CHECK_FALSE(rank.checkpoints.wants({10}));
  rank.checkpoints.save_together({10});

  CHECK(rank.told(io::SaveEvent::Kind::saved, 10));
}

TEST_CASE("checkpoints: hosts in front of their GPUs ask for no save while a copy is under way") {
  SavingRank rank(true);
  rank.copy.ahead = 2;

  REQUIRE(rank.checkpoints.wants({8}));
  rank.copy.complete = false;
  rank.checkpoints.save_together({10});
  CHECK_FALSE(rank.checkpoints.wants({18}));
  REQUIRE(rank.checkpoints.counts().skipped == 1);
  CHECK(rank.events.back().text == "the copy before it is not done: nothing saved at step 20");
  rank.copy.complete = true;

  CHECK(rank.checkpoints.wants({28}));
  CHECK(rank.told(io::SaveEvent::Kind::saved, 10));
}

TEST_CASE("checkpoints: a due step waits for no save that a user has asked for just before it") {
  SavingRank rank(true);
  rank.copy.ahead = 2;
  rank.checkpoints.request({6});
  CHECK_THAT(rank.events.back().text, Catch::Contains("follows 3 steps from now, or as soon as"));

  REQUIRE(rank.checkpoints.wants({7}));
  CHECK_FALSE(rank.checkpoints.wants({8}));  // step 10 is due, step 9 asked for
  CHECK(rank.events.back().text == "the save before it has not started: nothing saved at step 10");
  rank.checkpoints.save_together({9});

  CHECK(rank.told(io::SaveEvent::Kind::saved, 9));
  CHECK(rank.checkpoints.counts().skipped == 1);
  CHECK(rank.checkpoints.wants({18}));
}

TEST_CASE("checkpoints: what a user asks for is asked of the ranks once") {
  SavingRank rank(true);
  rank.copy.ahead = 2;
  rank.checkpoints.request({2});

  CHECK(rank.checkpoints.wants({3}));
  CHECK_FALSE(rank.checkpoints.wants({4}));
  CHECK_FALSE(rank.checkpoints.wants({5}));
  rank.checkpoints.save_together({5});

  CHECK(rank.told(io::SaveEvent::Kind::saved, 5));
  CHECK_FALSE(rank.checkpoints.wants({6}));
}

TEST_CASE("checkpoints: shards that are late cost their save, and only that") {
  SavingRank rank(true);
  rank.copy.complete = false;
  rank.checkpoints.save_together({10});

  REQUIRE(rank.told(io::SaveEvent::Kind::failed, 10));
  CHECK_THAT(rank.events.back().text, Catch::Contains("step 10 not saved: rank 1 is late"));
  CHECK(rank.copy.released == 1);
  CHECK(rank.checkpoints.counts().failed == 1);
  rank.copy.complete = true;
  CHECK(rank.checkpoints.wants({20}));
  rank.checkpoints.save_together({20});

  CHECK(rank.told(io::SaveEvent::Kind::saved, 20));
}

TEST_CASE("checkpoints: the first save of a state that is not finite is kept in mind") {
  SavingRank rank(true);
  rank.checkpoints.save_together({10});
  CHECK(rank.told(io::SaveEvent::Kind::saved, 10));
  CHECK(rank.checkpoints.refused().empty());

  for (const std::uint64_t step : {20, 30}) {
    rank.copy.value = std::numeric_limits<float>::infinity();
    rank.checkpoints.save_together({step});
    CHECK(rank.told(io::SaveEvent::Kind::failed, step));
  }

  CHECK(rank.checkpoints.refused().find("step 20 ") != std::string::npos);
  CHECK(rank.checkpoints.refused().find("tensor weights/") != std::string::npos);
}

TEST_CASE("checkpoints: a GPU that fails at the end leaves no rank in wait for rank 0's word") {
  SavingRank rank(true);
  const bool in_last_copy = GENERATE(true, false);
  rank.copy.complete = false;
  if (!in_last_copy) rank.checkpoints.save_together({10});
  rank.copy.broken = true;
  rank.said.clear();

  const auto failure = rank.checkpoints.finish({20}, Deadline(0.2));

  REQUIRE(failure.has_value());
  CHECK_THAT(failure->what(), Catch::Contains("illegal memory access"));
  CHECK(rank.said == std::vector<bool>{in_last_copy});
}

TEST_CASE("checkpoints: at the end rank 0 says once whether it saves") {
  SavingRank rank(true);
  const bool saved_before = GENERATE(true, false), late = GENERATE(true, false);
  if (saved_before) rank.checkpoints.save({5});
  rank.copy.complete = !late;
  rank.said.clear();

  const auto failure = rank.checkpoints.finish({5}, Deadline(late && !saved_before ? 0.2 : 60));

  CHECK(rank.said == std::vector<bool>{!saved_before});
  CHECK(rank.copy.with_targets == 1);
  CHECK(failure.has_value() == (late && !saved_before));
  CHECK(rank.copy.released == 1);
}

TEST_CASE("checkpoints: the other ranks start their copies when rank 0 does") {
  SavingRank rank(false, true);

  CHECK_FALSE(rank.checkpoints.wants({10}));
  rank.checkpoints.save_together({10});
  rank.checkpoints.offer({10});
  rank.checkpoints.save({11});
  CHECK_FALSE(rank.checkpoints.finish({11}, Deadline(1)));

  CHECK(rank.copy.without_targets == 3);
  CHECK(rank.said == std::vector<bool>{false, false});
}
