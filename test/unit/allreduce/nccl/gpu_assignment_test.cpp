#include "ringtrain/allreduce/nccl/gpu_assignment.hpp"

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "allreduce/nccl/nccl_communicator.hpp"
#include "ringtrain/base/error.hpp"
#include "support/catch.hpp"
#include "support/recording_nccl.hpp"
#include "support/variable.hpp"

using namespace ringtrain;
using namespace ringtrain::allreduce;
using Catch::Contains;
using Gpus = std::vector<std::string>;

namespace {

std::vector<int> devices(const std::vector<int>& host_of, const std::vector<Gpus>& visible) {
  std::vector<int> all;
  for (int rank = 0; rank < static_cast<int>(host_of.size()); ++rank)
    all.push_back(assign_gpus(rank, host_of, visible, false).device);
  return all;
}

std::string value(const GpuAssignment& place, const std::string& name) {
  const auto found =
      std::ranges::find(place.environment, name, &std::pair<std::string, std::string>::first);
  return found == place.environment.end() ? "unset" : found->second;
}

std::string environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

TEST_CASE("gpu place: ranks of a host that see the same GPUs take one each") {
  const Gpus both{"a", "b"};

  CHECK(devices({0, 1, 0, 1}, {both, both, both, both}) == std::vector<int>{0, 0, 1, 1});
  CHECK_FALSE(assign_gpus(2, {0, 1, 0, 1}, {both, both, both, both}, false).shared);
}

TEST_CASE("gpu place: a scheduler may show each rank its own GPU") {
  const std::vector<Gpus> own{{"a"}, {"b"}, {"c"}};

  CHECK(devices({0, 0, 0}, own) == std::vector<int>{0, 0, 0});
  CHECK_FALSE(assign_gpus(0, {0, 0, 0}, own, false).shared);
}

TEST_CASE("gpu place: without sharing NCCL chooses how to sum, unless bits must repeat") {
  const std::vector<Gpus> both{{"a", "b"}, {"a", "b"}};

  const GpuAssignment place = assign_gpus(0, {0, 0}, both, false);
  CHECK(place.environment.empty());
  CHECK(place.warning.empty());

  CHECK(assign_gpus(0, {0, 0}, both, true).environment ==
        std::vector<std::pair<std::string, std::string>>{{"NCCL_ALGO", "Ring"}});
}

TEST_CASE("gpu place: more ranks than GPUs are dealt out evenly, with a loud warning") {
  const Gpus both{"a", "b"};
  const std::vector<Gpus> visible(5, both);

  const GpuAssignment place = assign_gpus(3, {0, 0, 0, 0, 0}, visible, false);

  CHECK(devices({0, 0, 0, 0, 0}, visible) == std::vector<int>{0, 1, 0, 1, 0});
  CHECK(place.shared);
  CHECK_THAT(place.warning, Contains("WARNING: up to 3 ranks share a GPU"));
  CHECK(value(place, "NCCL_ALGO") == "Ring");
  CHECK(value(place, "NCCL_HOSTID") == "host0-r3");
  CHECK(value(place, "NCCL_NET") == "Socket");
  CHECK(value(place, "NCCL_SOCKET_IFNAME") == "lo");
  CHECK(value(place, "NCCL_IB_DISABLE") == "1");
  CHECK(value(place, "NCCL_PROTO") == "Simple");
  CHECK(value(place, "NCCL_MAX_CTAS") == "2");
  CHECK(value(place, "NCCL_NVLS_ENABLE") == "0");
  CHECK(value(place, "NCCL_MNNVL_ENABLE") == "0");
  CHECK(value(place, "NCCL_RAS_ENABLE") == "0");
}

TEST_CASE("gpu place: sharing on one host concerns all ranks, and between hosts no loopback") {
  const GpuAssignment place = assign_gpus(2, {0, 0, 1}, {{"a"}, {"a"}, {"a"}}, false);

  CHECK(place.shared);
  CHECK(value(place, "NCCL_HOSTID") == "host1-r2");
  CHECK(value(place, "NCCL_SOCKET_IFNAME") == "unset");
}

TEST_CASE("gpu place: a rank without a GPU is refused by name") {
  CHECK_THROWS_WITH(assign_gpus(0, {0, 1}, {{"a"}, {}}, false), Contains("rank 1 sees no GPU"));
}

TEST_CASE("gpu place: what the user told NCCL stays") {
  const char* const before = std::getenv("NCCL_ALGO");
  REQUIRE(before == nullptr);
  ::setenv("NCCL_ALGO", "Tree", 1);
  const auto nccl = std::make_shared<RecordingNccl>();
  const MpiSession session;

  const int device = choose_gpu(session, true, {}, *nccl);
  const auto communicator = make_nccl_communicator(session, {.device = device}, nccl);

  CHECK(environment("NCCL_ALGO") == "Tree");
  ::unsetenv("NCCL_ALGO");
  CHECK(nccl->calls() == Gpus{"device 0", "stream"});
  CHECK(communicator->size() == 1);
}

TEST_CASE("gpu place: NCCL is told to sum around a ring where bits must repeat") {
  const bool same_bits = GENERATE(false, true);
  REQUIRE(std::getenv("NCCL_ALGO") == nullptr);
  const MpiSession session;

  RecordingNccl nccl;
  choose_gpu(session, same_bits, {}, nccl);

  CHECK(environment("NCCL_ALGO") == (same_bits ? "Ring" : ""));
  ::unsetenv("NCCL_ALGO");
}

TEST_CASE("gpu place: NCCL is told the network by whole names, unless the user told it one") {
  const auto [set, interfaces, told] =
      GENERATE(table<const char*, Gpus, const char*>({{nullptr, {}, ""},
                                                      {nullptr, {"eth1"}, "=eth1"},
                                                      {nullptr, {"eth1", "ib0"}, "=eth1,ib0"},
                                                      {"ens", {"eth1"}, "ens"}}));
  CAPTURE(set, interfaces);
  const Variable variable("NCCL_SOCKET_IFNAME", set);
  const MpiSession session;

  RecordingNccl nccl;
  choose_gpu(session, false, interfaces, nccl);

  CHECK(environment("NCCL_SOCKET_IFNAME") == told);
}

TEST_CASE("nccl: where there is no GPU, or no build for it, one sentence says so") {
  const MpiSession session;
  std::optional<Error> refusal;
  try {
    choose_gpu(session, false, {});
  } catch (const Error& error) {
    refusal = error;
  }
  if (!refusal) skip_test("there is a GPU here");

  CHECK(refusal->code() == Exit::usage);
  CHECK_THAT(refusal->what(),
             Contains("--allreduce nccl: ") &&
                 (Contains("no GPU can be used here") || Contains("RINGTRAIN_CUDA=ON")));
}
