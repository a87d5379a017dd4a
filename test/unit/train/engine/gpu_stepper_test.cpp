// Where the seconds of a step go, on a GPU that a test plays.
#include "train/engine/gpu_stepper.hpp"

#include <chrono>
#include <deque>
#include <memory>
#include <thread>

#include "support/catch.hpp"

using namespace ringtrain;
using namespace ringtrain::train;
using namespace std::chrono_literals;

namespace {

/// Answers each step with `told`.
struct PlayedTraining final : compute::GpuTraining {
  std::vector<std::pair<std::string, View>> slots() const override { return {}; }
  View loss_scale() const override { return {}; }
  void reset() override {}
  void refresh() override {}
  void queue(const Batch&, const compute::GpuBatchNumbers&) override {
    std::this_thread::sleep_for(queue_takes);
    ++queued;
  }
  std::optional<compute::GpuOutcome> outcome(int ahead) override {
    if (queued <= ahead) return std::nullopt;
    --queued;
    return told;
  }
  void close() override {}

  compute::GpuOutcome told;
  std::chrono::milliseconds queue_takes{0};
  int queued = 0;
};

metrics::PhaseSeconds seconds_of(const compute::GpuOutcome& told,
                                 std::chrono::milliseconds queue_takes = 0ms) {
  const auto data =
      io::open_dataset("synthetic", io::Split::training, {.extent = {8, 8}, .classes = 10});
  io::LoaderOptions options;
  options.global_batch = 2;
  options.share = {0, 2};
  options.augmentation.output = {8, 8};
  io::Loader loader(*data, options);
  PlayedTraining training;
  training.told = told;
  training.queue_takes = queue_takes;
  monitor::Progress progress;
  GpuStepper stepper(training, StepSettings{1, 2, 2, data->size(), {.peak = 0.1}, false}, {}, 1, 0,
                     progress);
  return stepper.step(loader, {})->seconds;
}

}  // namespace

TEST_CASE("GpuStepper: the copy of a batch is what the GPU waited for it, by the copy's own time") {
  const auto copy_of = [](const compute::GpuOutcome& told) {
    return seconds_of(told)[metrics::Phase::copy];
  };

  CHECK(copy_of({.idle_s = 100, .staged_s = 0.25, .copy_s = 2}) == Approx(2.25));
  CHECK(copy_of({.idle_s = 0, .staged_s = 0.25, .copy_s = 2}) == 0);
  const auto bounded = seconds_of({.idle_s = 1, .copy_s = 2});
  CHECK(bounded[metrics::Phase::copy] + bounded[metrics::Phase::data_wait] == Approx(1));
}

TEST_CASE("GpuStepper: what the host waits for a free slot is no copy") {
  CHECK(seconds_of({.idle_s = 100, .copy_s = 0.001}, 50ms)[metrics::Phase::copy] == Approx(0.001));
}
