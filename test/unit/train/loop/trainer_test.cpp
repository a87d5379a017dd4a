#include "train/loop/trainer.hpp"

#include <fmt/core.h>

#include <chrono>
#include <deque>
#include <memory>
#include <numeric>
#include <thread>

#include "ringtrain/allreduce/communicator/communicator.hpp"
#include "support/catch.hpp"
#include "train/loop/stop_control.hpp"

using namespace ringtrain;
using namespace ringtrain::train;

namespace {

StepSettings settings_of(int micro_batch) {
  StepSettings settings;
  settings.micro_batch = micro_batch;
  return settings;
}

/// Makes no step; reports each `behind` steps late, as a GPU does.
class CountingStepper final : public Stepper {
 public:
  CountingStepper(std::uint64_t behind, Position start)
      : Stepper(settings_of(4), start), behind_(behind) {}

  std::optional<StepReport> step(io::Loader&, const host::StepRequest& request) override {
    requests.push_back(request);
    advance();
    under_way_.push_back(position());
    return under_way_.size() > behind_ ? finish_step() : std::nullopt;
  }
  std::optional<StepReport> finish_step() override {
    if (under_way_.empty()) return std::nullopt;
    StepReport report{under_way_.front(), 0.1, {}, 0, {}};
    report.outcome.stop = report.position.step == stop_at;
    under_way_.pop_front();
    return report;
  }

  std::vector<host::StepRequest> requests;
  std::uint64_t stop_at = 0;

 private:
  const std::uint64_t behind_;
  std::deque<Position> under_way_;
};

using Events = std::vector<std::string>;

struct RecordingHook : Hook {
  RecordingHook(std::string hook_name, Events& all) : name(std::move(hook_name)), events(all) {}

  void before_step(const Position& p, host::StepRequest&) override { add("before", p.step); }
  void step_done(const StepReport& r) override { add("done", r.position.step); }
  void between_steps(Trainer& trainer) override { add("between", trainer.position().step); }
  void step_timed(const StepReport& r, double wall_s) override {
    add("timed", r.position.step);
    walls.push_back(wall_s);
  }
  void after_step(const Position& p) override { add("after", p.step); }
  void before_evaluation(const Position& p) override { add("before evaluation", p.step); }
  void add(std::string_view what, std::uint64_t step) {
    events.push_back(fmt::format("{}: {} {}", name, what, step));
  }

  const std::string name;
  Events& events;
  std::vector<double> walls;
};

/// A training of `steps` steps with hooks a and b, which evaluates every `evaluate_every`.
struct Training {
  explicit Training(std::uint64_t behind = 0) : stepper(behind, {}) {}

  void run() {
    Trainer trainer({stepper, loader, *communicator, progress, hooks,
                     [this](const Position& p) { return p.step >= steps; },
                     [this] { return control.stopping(); },
                     [this](const Position& p) { return p.step % evaluate_every == 0; },
                     [this](const Position& p) {
                       events.push_back(fmt::format("evaluate {}", p.step));
                       std::this_thread::sleep_for(evaluation);
                     }});
    trainer.train();
    end = trainer.position();
  }

  std::unique_ptr<io::Dataset> data =
      io::open_dataset("synthetic", io::Split::training, {.extent = {8, 8}});
  io::Loader loader{*data, {.global_batch = 4, .share = {0, 4}}};
  std::unique_ptr<allreduce::Communicator> communicator = allreduce::make_solo_communicator();
  monitor::Progress progress;
  CountingStepper stepper;
  StopControl control{std::nullopt, Stopwatch()};
  Events events;
  RecordingHook a{"a", events}, b{"b", events};
  std::vector<Hook*> hooks{&a, &b};
  std::uint64_t steps = 2, evaluate_every = 1000;
  std::chrono::milliseconds evaluation{0};
  Position end;
};

}  // namespace

TEST_CASE("Trainer: hooks are called at each point of a step, in the order of their list") {
  Training training;
  training.run();
  CHECK(training.events == Events{"a: before 0",  "b: before 0",  "a: done 1",    "b: done 1",
                                  "a: between 1", "b: between 1", "a: timed 1",   "b: timed 1",
                                  "a: after 1",   "b: after 1",   "a: before 1",  "b: before 1",
                                  "a: done 2",    "b: done 2",    "a: between 2", "b: between 2",
                                  "a: timed 2",   "b: timed 2",   "a: after 2",   "b: after 2"});
  CHECK(training.end.step == 2);
  CHECK(training.end.samples == 8);
}

TEST_CASE("Trainer: steps that are reported late are all reported, once and in order") {
  Training training(2);
  training.hooks = {&training.a};
  training.steps = 3;
  training.run();
  CHECK(training.events == Events{"a: before 0", "a: between 1", "a: after 1", "a: before 1",
                                  "a: between 2", "a: after 2", "a: before 2", "a: done 1",
                                  "a: between 3", "a: timed 1", "a: after 3", "a: done 2",
                                  "a: timed 2", "a: done 3", "a: timed 3"});
}

TEST_CASE("Trainer: all steps are over before an evaluation, which is no part of a step's time") {
  Training training(1);
  training.hooks = {&training.a};
  training.evaluate_every = 2;
  training.evaluation = std::chrono::milliseconds(100);
  training.steps = 4;
  const Stopwatch watch;
  training.run();
  CHECK(training.events == Events{"a: before 0",
                                  "a: between 1",
                                  "a: after 1",
                                  "a: before 1",
                                  "a: done 1",
                                  "a: between 2",
                                  "a: timed 1",
                                  "a: after 2",
                                  "a: done 2",
                                  "a: timed 2",
                                  "a: before evaluation 2",
                                  "evaluate 2",
                                  "a: before 2",
                                  "a: between 3",
                                  "a: after 3",
                                  "a: before 3",
                                  "a: done 3",
                                  "a: between 4",
                                  "a: timed 3",
                                  "a: after 4",
                                  "a: done 4",
                                  "a: timed 4",
                                  "a: before evaluation 4",
                                  "evaluate 4"});
  const double steps_s = std::reduce(training.a.walls.begin(), training.a.walls.end());
  CHECK(steps_s < watch.elapsed() - 0.2);
}

TEST_CASE("Trainer: a hook may wait for all steps, which later hooks then know of") {
  Training training(2);
  struct Draining : RecordingHook {
    using RecordingHook::RecordingHook;
    void between_steps(Trainer& trainer) override {
      RecordingHook::between_steps(trainer);
      trainer.drain();
    }
  } draining("a", training.events);
  training.hooks = {&draining, &training.b};
  training.steps = 1;
  training.run();
  CHECK(training.events == Events{"a: before 0", "b: before 0", "a: between 1", "a: done 1",
                                  "b: done 1", "b: between 1", "a: timed 1", "b: timed 1",
                                  "a: after 1", "b: after 1"});
}

TEST_CASE("Trainer: no step and no evaluation follow once the ranks have agreed to stop") {
  Training training;
  training.hooks = {&training.control, &training.a};
  training.steps = 10;
  training.evaluate_every = 1;
  training.stepper.stop_at = 2;
  training.run();
  CHECK(training.end.step == 2);
  CHECK(std::ranges::count(training.events, "evaluate 1") == 1);
  CHECK(std::ranges::count(training.events, "evaluate 2") == 0);
  CHECK(training.control.exit_code() == 0);  // no signal: the time was up
}

TEST_CASE("Stop control: a rank asks to stop in time for the steps and saves that are to come") {
  const Stopwatch since_start;
  StopControl control(100.0, since_start);
  CHECK_FALSE(control.wanted().stop);
  control.set_save_s(20);
  CHECK_FALSE(control.wanted().stop);  // 1 + 2 * 20 s are left
  control.step_timed({}, 25);
  CHECK(control.wanted().stop);  // 3 * 25 s more are not
  CHECK(control.wanted().signal == 0);
  CHECK_FALSE(control.stopping());  // until all have agreed
  control.agree({true, SIGTERM});
  CHECK(control.stopping());
  CHECK(control.exit_code() == 128 + SIGTERM);
  control.agree({true, SIGINT});
  CHECK(control.signal() == SIGTERM);  // the first counts
}

TEST_CASE("Stop control: a failure of all ranks ends training, unless they stop already") {
  const bool stops = GENERATE(false, true);
  Training training;
  training.steps = 5;
  training.evaluate_every = 2;
  if (stops) training.control.agree({true, SIGTERM});
  training.control.fail(Error(Exit::data, "read images", "none can be read"));

  training.run();

  CHECK(training.end.step == 0);
  CHECK(training.control.stopping());
  CHECK(training.control.failure().has_value() == !stops);
  CHECK(training.control.exit_code() == (stops ? 128 + SIGTERM : 0));
}

TEST_CASE("Stop control: a save is asked of all ranks once, and keeps what others ask") {
  StopControl control(std::nullopt, Stopwatch());
  host::StepRequest request{.save = true};
  control.before_step({}, request);
  CHECK(request.signal == 0);
  CHECK(request.save);
  Evaluation asked;  // at whose end a SIGUSR1 came
  asked.unsaid = {false, SIGUSR1};
  control.evaluated({}, asked);
  control.before_step({}, request);
  CHECK(request.signal == SIGUSR1);
  CHECK_FALSE(request.stop);
  CHECK(request.save);
  control.before_step({}, request);
  CHECK(request.signal == 0);
  CHECK_FALSE(control.take_save());  // until all have agreed
  control.agree({false, SIGUSR1});
  CHECK(control.take_save());
  CHECK_FALSE(control.take_save());
}
