#include "ringtrain/monitor/phase_scope.hpp"

#include <thread>

#include "support/catch.hpp"

using namespace ringtrain;
using namespace ringtrain::monitor;
using namespace std::chrono_literals;

TEST_CASE("phase scope: watchdog, timeline and the step's seconds are told of the same phase") {
  metrics::Timeline timeline(4);
  Progress progress;
  progress.record_in(&timeline);
  progress.begin_step(7);
  metrics::PhaseSeconds step;
  {
    const PhaseScope update(progress, metrics::Phase::update, step);
    CHECK(progress.now().phase == metrics::Phase::update);
    CHECK(timeline.added() == 0);
    std::this_thread::sleep_for(2ms);
  }

  CHECK(progress.now().phase == metrics::Phase::update);  // until another is entered
  CHECK(step[metrics::Phase::update] >= 0.002);
  CHECK(step.total() == step[metrics::Phase::update]);
  const auto spans = timeline.spans();
  REQUIRE(spans.size() == 1);
  CHECK(spans[0].phase == metrics::Phase::update);
  CHECK(spans[0].number == 7);
  CHECK(spans[0].row == 0);
  CHECK(1e-9 * double(spans[0].end_ns - spans[0].begin_ns) == Approx(step[metrics::Phase::update]));
}

TEST_CASE("phase scope: one that is ended counts once, and a phase that comes again adds up") {
  metrics::Timeline timeline(4);
  Progress progress;
  progress.record_in(&timeline);
  metrics::PhaseSeconds step;
  double seconds = 0;
  for (int micro = 0; micro < 2; ++micro) {
    PhaseScope waiting(progress, metrics::Phase::data_wait, step);
    std::this_thread::sleep_for(1ms);
    seconds += waiting.end();
    std::this_thread::sleep_for(1ms);
  }

  CHECK(step[metrics::Phase::data_wait] == Approx(seconds));
  CHECK(timeline.added() == 2);
}

TEST_CASE("phase interruption: what it interrupted is named again, with its path") {
  Progress progress;
  progress.at(Work::open, "/mnt/a");
  {
    const PhaseInterruption output(progress, metrics::Phase::output);
    CHECK(progress.now().phase == metrics::Phase::output);
    CHECK(progress.item().empty());
  }
  CHECK(progress.now().phase == metrics::Phase::open);
  CHECK(progress.item() == "/mnt/a");
}
