#include "ringtrain/monitor/telemetry/system_sampler.hpp"

#include <dlfcn.h>

#include <chrono>
#include <thread>

#include "ringtrain/base/unique_handle.hpp"
#include "support/catch.hpp"

using namespace ringtrain;
using namespace ringtrain::monitor;
using namespace std::chrono_literals;

namespace {

class HotGpu final : public GpuMonitor {
 public:
  explicit HotGpu(bool answers) : answers_(answers) {}
  std::optional<Reading> read() override {
    if (!answers_) return std::nullopt;
    return Reading{.clock_hz = 1.2e9, .hot = true};
  }

 private:
  const bool answers_;
};

// The second look is no earlier than half a second after the first.
SystemSample after_two_looks(SystemSampler& signs) {
  signs.look(0, 0);
  std::this_thread::sleep_for(510ms);
  return signs.look(0.25, 0.125);
}

}  // namespace

TEST_CASE("system sampler: of this process and host") {
  SystemSampler signs;
  const SystemSample sample = after_two_looks(signs);

  CHECK(sample.seconds >= 0.5);
  CHECK(sample.seconds < 60);
  CHECK(sample[SystemMetric::still] == 0.25);
  CHECK(sample[SystemMetric::no_cpu] == 0.125);
  CHECK(sample[SystemMetric::others] > 0);
  CHECK(sample[SystemMetric::runnable] > 0);
  CHECK(sample[SystemMetric::resident] / sample.seconds > 1e6);
  CHECK(sample[SystemMetric::gpu_clock] == 0);
}

TEST_CASE("system sampler: looks in quick succession cost nothing, and show the same") {
  SystemSampler signs;
  const double first = signs.look(0, 0).seconds;
  CHECK(signs.look(1, 1).seconds == first);
}

TEST_CASE("system sampler: a GPU's clock, and what slows it down, are summed over time") {
  SystemSampler signs;
  signs.watch(std::make_unique<HotGpu>(true));
  SystemSample before = after_two_looks(signs);  // the driver is asked by another thread
  for (int i = 0; i < 60 && before[SystemMetric::gpu_clock] == 0; ++i)
    before = after_two_looks(signs);
  const SystemSample sample = after_two_looks(signs);
  const double seconds = sample.seconds - before.seconds;

  CHECK(sample[SystemMetric::gpu_clock] - before[SystemMetric::gpu_clock] ==
        Approx(1.2e9 * seconds));
  CHECK(sample[SystemMetric::gpu_hot] - before[SystemMetric::gpu_hot] == Approx(seconds));
  CHECK(sample[SystemMetric::gpu_power] == 0);
}

TEST_CASE("GPU gauge: asks NVIDIA's library, where there is one, for the GPU with that bus id") {
  const UniqueHandle<void*, ::dlclose> library(::dlopen(FAKE_NVML, RTLD_LAZY));
  REQUIRE(library.get() != nullptr);

  const auto gpu_monitor = make_gpu_monitor("0000:01:00.0");

  REQUIRE(gpu_monitor);
  const auto reading = gpu_monitor->read();
  REQUIRE(reading);
  CHECK(reading->clock_hz == 1.2e9);
  CHECK(reading->hot);
  CHECK(reading->short_of_power);
  CHECK_FALSE(make_gpu_monitor("0000:02:00.0"));
}

TEST_CASE("system sampler: a GPU that does not answer, or is not there, is none") {
  SystemSampler signs;
  signs.watch(std::make_unique<HotGpu>(false));
  CHECK(signs.look(0, 0)[SystemMetric::gpu_clock] == 0);
  CHECK(make_gpu_monitor("0000:ff:1f.7") == nullptr);
}
