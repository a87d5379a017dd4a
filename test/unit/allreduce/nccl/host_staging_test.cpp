#include "allreduce/nccl/host_staging.hpp"

#include <limits>

#include "support/catch.hpp"
#include "support/recording_nccl.hpp"

using namespace ringtrain;
using namespace ringtrain::allreduce;
using Texts = std::vector<std::string>;

namespace {

// Doubles what it sums, as if the only other rank had the same numbers, and writes down in order
// with the calls.
struct Cpus final : Communicator, CompressionState {
  explicit Cpus(RecordingNccl& calls)
      : Communicator({.rank = 1, .size = 2, .overlaps = true}), nccl(calls) {}

  Memory& memory() override { return host; }
  void broadcast(View, int) override { FAIL("of GPUs' numbers"); }
  void start_allreduce(View values, const SumOptions& options) override {
    nccl.write_down(
        fmt::format("sum of {}{}", values.size(), options.compressed ? ", compressed" : ""));
    for (float& value : values.host()) value *= 2;
  }
  void finish() override { nccl.write_down("sums are over"); }
  CompressionState* compression_state() override { return this; }
  void abort() noexcept override { aborted = true; }

  void accept() override {}
  void scale(float factor) override {
    nccl.write_down(fmt::format("left over * {}", factor));
    left_over *= factor;
  }
  std::size_t size() const override { return 1; }
  void read(std::span<float> values, float factor) const override {
    values.front() = factor * left_over;
  }
  void write(std::span<const float> values) override { left_over = values.front(); }

  RecordingNccl& nccl;
  HostMemory host;
  float left_over = 0;
  bool aborted = false;
};

// What NCCL does besides: nothing here, but it can be lost.
struct Gpus final : Communicator {
  Gpus() : Communicator({.rank = 1, .size = 2}) {}
  Memory& memory() override { return host; }
  void broadcast(View, int) override {}
  void start_allreduce(View, const SumOptions&) override { FAIL("of what CPUs sum"); }
  void finish() override {}
  void check() override {
    if (++checks == lost_at) throw Error("sum between GPUs", "a rank is gone");
  }
  void abort() noexcept override { aborted = true; }

  HostMemory host;
  int checks = 0, lost_at = 0;
  bool aborted = false;
};

struct StagedJob {
  std::shared_ptr<RecordingNccl> nccl = std::make_shared<RecordingNccl>();
  std::vector<float> on_gpu = {1, 2, 3, 4, 5, 6};
  Gpus gpus;
  Cpus cpus{*nccl};
  float loss_scale = 8;
  std::optional<HostStaging> staging;

  explicit StagedJob(bool can_pin = true) {
    nccl->base = on_gpu.data();
    nccl->on_gpu = std::ssize(on_gpu);
    nccl->can_pin = can_pin;
    staging.emplace(nccl, gpus, cpus, all(), nccl->compute());
    nccl->forget();
  }
  View all() { return {on_gpu.data(), on_gpu.size()}; }
  View slice(std::size_t first, std::size_t count) { return all().slice(first, count); }
  void step() {
    staging->start_allreduce(slice(3, 3), {.compressed = true, .first = 1});
    staging->start_allreduce(slice(0, 3), {});
    staging->finish();
  }
};

}  // namespace

TEST_CASE(
    "host staging: copies follow the GPU's work, sums follow copies, and the GPU waits for them") {
  StagedJob job;
  job.staging->start_allreduce(job.slice(3, 3), {.compressed = true, .first = 1});
  CHECK(job.nccl->calls() == Texts{"record 1 on compute", "sums waits for 1",
                                   "copy 3+3 to the host on sums", "record 3 on sums"});
  job.staging->start_allreduce(job.slice(0, 3), {});
  job.nccl->forget();

  job.staging->finish();

  CHECK(job.nccl->calls() == Texts{"sum of 3, compressed", "sum of 3", "sums are over",
                                   "copy 3+3 back on sums", "copy 0+3 back on sums",
                                   "record 2 on sums", "compute waits for 2"});
  CHECK(job.on_gpu == std::vector<float>{2, 4, 6, 8, 10, 12});
  CHECK(job.staging->finite());
}

TEST_CASE("host staging: sums wait for the GPU, and look meanwhile whether it is lost") {
  StagedJob job;
  job.nccl->polls_until_done = 3;
  job.step();
  CHECK(job.on_gpu.front() == 2);
  CHECK(job.gpus.checks == 3);

  job.nccl->polls_until_done = 1000;
  job.gpus.lost_at = job.gpus.checks + 2;
  job.nccl->forget();
  CHECK_THROWS_WITH(job.step(), Catch::Contains("a rank is gone"));
  CHECK(job.nccl->count("sums are over") == 0);
}

TEST_CASE("host staging: each step sums anew, and one without sums makes no call") {
  StagedJob job;
  job.step();
  job.step();
  CHECK(job.on_gpu == std::vector<float>{4, 8, 12, 16, 20, 24});
  job.nccl->forget();
  job.staging->finish();
  job.staging->start_allreduce(View(), {});
  job.staging->finish();
  CHECK(job.nccl->calls().empty());
}

TEST_CASE("host staging: a number that is not finite is told, until the next step") {
  const float wrong =
      GENERATE(std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
               std::numeric_limits<float>::quiet_NaN());
  StagedJob job;
  job.on_gpu[4] = wrong;
  job.step();
  CHECK_FALSE(job.staging->finite());
  job.on_gpu[4] = 1;
  job.step();
  CHECK(job.staging->finite());
}

TEST_CASE("host staging: a sum that is too large is told, though all numbers are finite") {
  StagedJob job;
  job.on_gpu[4] = 3e38f;
  job.step();
  CHECK_FALSE(job.staging->finite());
}

TEST_CASE("host staging: what was left out follows the loss scale, before the first sum") {
  StagedJob job;
  job.staging->follow_scale({&job.loss_scale, 1});
  job.step();
  job.cpus.left_over = 16;  // of gradients times 8
  job.loss_scale = 4;
  job.nccl->forget();
  job.step();
  CHECK(job.nccl->place("left over * 0.5") < job.nccl->place("sum of 3, compressed"));
  CHECK(job.cpus.left_over == 8);
  job.nccl->forget();
  job.step();
  CHECK(job.nccl->count("left over * 1") == 0);
}

TEST_CASE("host staging: what was left out is kept without a loss scale, whichever comes next") {
  StagedJob job;
  job.staging->follow_scale({&job.loss_scale, 1});
  job.step();
  job.cpus.left_over = 16;  // of gradients times 8

  float kept = 0;
  CompressionState& state = *job.staging->compression_state();
  state.read({&kept, 1});
  CHECK(kept == 2);
  CHECK(job.cpus.left_over == 16);

  StagedJob resumed;  // with the scale that the step before the save has chosen
  resumed.loss_scale = 4;
  resumed.staging->follow_scale({&resumed.loss_scale, 1});
  resumed.staging->compression_state()->write({&kept, 1});
  job.loss_scale = 4;
  for (StagedJob* each : {&job, &resumed}) each->step();
  CHECK(job.cpus.left_over == 8);
  CHECK(resumed.cpus.left_over == 8);
}

TEST_CASE("host staging: memory is unpinned where it could be pinned") {
  const bool can_pin = GENERATE(true, false);
  StagedJob job(can_pin);
  CHECK(job.staging->pinned() == can_pin);
  job.step();
  CHECK(job.on_gpu.front() == 2);
  job.staging.reset();
  CHECK(job.nccl->count("unpin") == (can_pin ? 1 : 0));
  if (can_pin) CHECK(job.nccl->place("wait for sums") < job.nccl->place("unpin"));
}

TEST_CASE("host staging: numbers of elsewhere, and what needs a hook, are refused") {
  StagedJob job;
  std::vector<float> others(3);
  CHECK_THROWS_AS(job.staging->start_allreduce({others.data(), 3}, {}), Error);
  const ReduceHook hook = [](View) {};
  CHECK_THROWS_AS(job.staging->start_allreduce(job.slice(0, 3), {.hook = &hook}), Error);
}

TEST_CASE("host staging: giving up ends the sums of the CPUs, too") {
  StagedJob job;
  job.staging->start_allreduce(job.slice(0, 3), {});
  job.staging->abort();
  CHECK(job.cpus.aborted);
  CHECK(job.gpus.aborted);
}
