#include "train/loop/step_logger.hpp"

#include <cmath>

#include "support/catch.hpp"

using namespace ringtrain;
using namespace ringtrain::train;
using Catch::Contains;
using Catch::Matches;

namespace {

struct EventReporter : metrics::Reporter {
  void note(std::string_view) override {}
  void progress(const metrics::ProgressState&) override {}
  void write(const metrics::Record& record) override {
    if (const auto* event = std::get_if<metrics::EventRecord>(&record))
      events += event->what + ": " + event->text + "\n";
  }
  std::string events;
};

// Three ranks on two hosts, whose steps are 50 ms of work and 5 ms of waiting, as rank 0 logs them.
class LoggedJob {
 public:
  LoggedJob() {
    plan_.options.log_every = 1'000'000;
    plan_.options.steps = 1'000'000;
    plan_.global_batch = 96;
    plan_.ranks = 3;
    plan_.training = io::open_dataset("synthetic", io::Split::training, {.extent = {8, 8}});
    logger_.emplace(reporter_, plan_, Position{}, 0, std::vector<std::string>{"a", "a", "b"},
                    [this](auto& all) { all = accounts_; });
  }
  /// So many seconds, in which rank 2 works `extra_s` longer in each step. Returns the events.
  std::string run(double seconds, double extra_s) {
    const double step_s = 0.055 + extra_s;
    for (long i = std::lround(seconds / step_s); i > 0; --i) {
      for (std::size_t r = 0; r < accounts_.size(); ++r) add_step(accounts_[r], r == 2, extra_s);
      ++position_.step;
      position_.samples += 96;
      logger_->step({position_, 0, {}, 0, {}}, step_s, 0);
    }
    return std::exchange(reporter_.events, {});
  }

 private:
  static void add_step(monitor::RankStats& rank, bool slow, double extra_s) {
    ++rank.spent.steps;
    rank.system.seconds += 0.055 + extra_s;
    rank.spent.phases[metrics::Phase::forward] += 0.020;
    rank.spent.phases[metrics::Phase::backward] += 0.030 + (slow ? extra_s : 0);
    rank.spent.phases[metrics::Phase::communication] += 0.005 + (slow ? 0 : extra_s);
  }

  RunPlan plan_;
  EventReporter reporter_;
  std::vector<monitor::RankStats> accounts_{3};
  Position position_;
  std::optional<StepLogger> logger_;
};

}  // namespace

TEST_CASE("StepLogger: a rank that holds up the others from the start is told once, and its end") {
  LoggedJob job;
  CHECK_THAT(job.run(300, 0.040),
             Matches("watchdog: rank 2 on b holds up the others: 90.0 ms of work a step, 1.8 times "
                     "the median; most of it in backward: 70.0 ms, where the median is 30.0 ms\n"));
  CHECK_THAT(job.run(60, 0), Matches("watchdog: rank 2 on b keeps up again\n"));
}

TEST_CASE("StepLogger: ranks that are not much slower, or only for some seconds, are not told") {
  LoggedJob job;
  CHECK(job.run(300, 0.020).empty());
  LoggedJob disturbed;
  for (int i = 0; i < 10; ++i) CHECK((disturbed.run(25, 0) + disturbed.run(5, 0.040)).empty());
}

TEST_CASE("StepLogger: a slow-down names its rank, which is not told a second time") {
  LoggedJob job;
  REQUIRE(job.run(120, 0).empty());
  const std::string told = job.run(200, 0.040);
  CHECK_THAT(told, Contains("slow_down: ") && Contains("on rank 2 (b)"));
  CHECK_THAT(told, !Contains("watchdog: "));
}
