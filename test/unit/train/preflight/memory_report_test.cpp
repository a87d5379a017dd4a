#include "train/preflight/memory_report.hpp"

#include "ringtrain/base/error.hpp"
#include "support/catch.hpp"

using namespace ringtrain;
using namespace ringtrain::train;
using Catch::Contains;

namespace {

config::Options planned(const std::string& model, std::optional<std::string> device) {
  config::Options o;
  o.model = model;
  o.data = "images:/nowhere";
  o.plan = true;
  o.plan_device = std::move(device);
  return o;
}

std::string report_of(const config::Options& o) { return plan_report(ModelSource(o), o); }

}  // namespace

TEST_CASE("plan: a CPU's memory is described without data") {
  config::Options o = planned("resnet20", std::nullopt);
  o.batch = 64;

  const std::string report = report_of(o);

  // 269,722 parameters and gradients and momentum of 4 bytes.
  CHECK_THAT(report, Contains("64 images a step") && Contains("0.003 GB"));
}

TEST_CASE("plan: checkpoint slots are two copies of the state") {
  config::Options o = planned("resnet20", std::nullopt);
  const std::string without = report_of(o);
  o.checkpoint_dir = "somewhere";

  const std::string with = report_of(o);

  // 2 slots of 269,722 parameters and momenta and 1,376 statistics of 4 bytes.
  CHECK_THAT(without, Contains("two slots for checkpoints                        0.000 GB"));
  CHECK_THAT(with, Contains("two slots for checkpoints                        0.004 GB"));
}

TEST_CASE("plan: images have the sizes that the recipe trains and evaluates on") {
  config::Options o = planned("resnet20", std::nullopt);
  o.batch = 64;
  const RankMemory usual = rank_memory(plan_without_data(ModelSource(o), o, 2));
  o.recipe = "crop=none:16";

  const RankMemory small = rank_memory(plan_without_data(ModelSource(o), o, 2));

  CHECK(small.activations < 0.3 * usual.activations);
  CHECK(small.batches == usual.batches / 4);
  CHECK(small.evaluation == usual.evaluation);
  CHECK(small.state == usual.state);
}

TEST_CASE("plan: bytes and arithmetic of a GPU are of the size that is trained") {
  if constexpr (!BUILT_WITH_CUDA) return;  // plan_device_test.cpp has what such a build says
  config::Options o = planned("resnet50", "h100");
  CHECK_THAT(report_of(o), Contains(" 32841 by arithmetic"));
  o.recipe = "crop=112";

  CHECK_THAT(report_of(o), Contains(" 124524 by arithmetic"));
}

TEST_CASE("plan: what does not fit is planned all the same") {
  config::Options o = planned("cifar10_cnn", std::nullopt);  // whose pools keep what wins
  o.batch = 1'000'000;

  CHECK_THAT(report_of(o), Contains("1000000 images a step") && Contains("in all"));
}

TEST_CASE("plan: between CPUs, gradients that travel in 16 bits take no memory") {
  config::Options o = planned("resnet20", std::nullopt);
  const std::string fp32 = report_of(o);
  o.gradient_dtype = Element::bf16;

  CHECK(report_of(o) == fp32);
}

TEST_CASE("plan: compressed gradients take memory, and few bytes") {
  config::Options o = planned("resnet20", std::nullopt);
  const double before = rank_memory(plan_without_data(ModelSource(o), o, 2)).state;
  o.compress = {.kind = allreduce::Compression::Kind::topk, .ratio = 0.01};

  CHECK_THAT(report_of(o), Contains("between two hosts: 0.03 MB of gradients a step, 2.5"));
  CHECK(rank_memory(plan_without_data(ModelSource(o), o, 2)).state - before > 3 * 4 * 260'000);
  CHECK(rank_memory(plan_without_data(ModelSource(o), o, 2)).state - before < 3 * 4 * 270'000);
}

TEST_CASE("plan: of shared momentum a rank has its part") {
  config::Options o = planned("resnet50", std::nullopt);
  const double whole = rank_memory(plan_without_data(ModelSource(o), o, 4)).state;
  o.shard_optimizer = true;

  // 25,557,032 momenta of 4 bytes.
  CHECK(whole - rank_memory(plan_without_data(ModelSource(o), o, 4)).state ==
        Approx(25'557'032 * 4 * 0.75));
  CHECK(rank_memory(plan_without_data(ModelSource(o), o, 1)).state == whole);
  CHECK_THAT(report_of(o), Contains("each of N ranks has 1/N of 0.102 GB"));
}

TEST_CASE("plan: of momentum that two GPUs share, each has half") {
  if constexpr (!BUILT_WITH_CUDA) return;  // plan_device_test.cpp has what such a build says
  config::Options o = planned("resnet50", "h100");
  CHECK_THAT(report_of(o), !Contains("1/N"));
  o.shard_optimizer = true;

  CHECK_THAT(report_of(o), Contains("each of N ranks has 1/N of 0.102 GB of optimizer's state: "
                                    "here N = 2"));
}

TEST_CASE("plan: an unknown GPU is refused with the known names") {
  CHECK_THROWS_WITH(report_of(planned("mlp", "h900")), Contains("h100, h200"));
}
