#include "ringtrain/host/numa.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "ringtrain/host/threads.hpp"
#include "support/catch.hpp"
#include "support/temporary_folder.hpp"

using namespace ringtrain;
using namespace ringtrain::host;

namespace {

using CpuIds = std::vector<int>;

void write_below(const std::filesystem::path& root, const std::string& file,
                 const std::string& text) {
  std::filesystem::create_directories((root / file).parent_path());
  std::ofstream(root / file) << text << '\n';
}

// Of one cpu each.
std::vector<CpuIds> cores(int count) {
  std::vector<CpuIds> all;
  for (int id = 0; id < count; ++id) all.push_back({id});
  return all;
}

std::vector<CpuIds> cpus_of_all(const std::vector<CpuIds>& cores, const std::vector<CpuIds>& near) {
  std::vector<CpuIds> all;
  for (std::size_t rank = 0; rank < near.size(); ++rank) {
    all.emplace_back();
    for (const CpuIds& core : cores_near(cores, near, static_cast<int>(rank)))
      all.back().insert(all.back().end(), core.begin(), core.end());
  }
  return all;
}

}  // namespace

TEST_CASE("numa: the cpus near a device are those of its node, where the system says it") {
  const TemporaryFolder folder;
  const std::string root = folder.path().string();
  write_below(root, "sys/bus/pci/devices/0000:3b:00.0/numa_node", "1");
  write_below(root, "sys/bus/pci/devices/0000:5e:00.0/numa_node", "-1");
  write_below(root, "sys/bus/pci/devices/0000:86:00.0/numa_node", "2");
  write_below(root, "sys/bus/pci/devices/0000:af:00.0/numa_node", "3");
  write_below(root, "sys/devices/system/node/node1/cpulist", "2-3,8,10-11");
  write_below(root, "sys/devices/system/node/node3/cpulist", "2-x");

  CHECK(cpus_near("0000:3B:00.0", root) == CpuIds{2, 3, 8, 10, 11});
  CHECK(cpus_near("0000:3b:00.0", root).size() == 5);
  CHECK(cpus_near("0000:5e:00.0", root).empty());  // one node only
  CHECK(cpus_near("0000:86:00.0", root).empty());  // a node without cpus
  CHECK(cpus_near("0000:af:00.0", root).empty());
  CHECK(cpus_near("0000:d8:00.0", root).empty());
}

TEST_CASE("numa: ranks have cores of their GPU's node, in whatever order GPUs are numbered") {
  const CpuIds node0{0, 1, 2, 3}, node1{4, 5, 6, 7};

  CHECK(cpus_of_all(cores(8), {node1, node0, node1, node0}) ==
        std::vector<CpuIds>{{4, 5}, {0, 1}, {6, 7}, {2, 3}});
}

TEST_CASE("numa: no rank has fewer cores for the sake of a near one") {
  const CpuIds node0{0, 1, 2, 3}, node1{4, 5, 6, 7};

  CHECK(cpus_of_all(cores(8), {node1}) == std::vector<CpuIds>{{4, 5, 6, 7, 0, 1, 2, 3}});
  CHECK(cpus_of_all(cores(8), {node1, node1}) == std::vector<CpuIds>{{4, 5, 0, 1}, {6, 7, 2, 3}});
  CHECK(cpus_of_all(cores(8), {node0, node1, node1}) ==
        std::vector<CpuIds>{{0, 1}, {4, 5, 2}, {6, 7, 3}});
  CHECK(cpus_of_all(cores(3), {{0, 1, 2}, {9}}) == std::vector<CpuIds>{{0}, {1, 2}});
}

TEST_CASE("numa: a plan has the cores near the rank's GPU, whole ones, and says so") {
  CpuAffinity place;  // two nodes of two cores, of two cpus each
  for (int id = 0; id < 8; ++id) place.cpus.push_back({id, id % 4, id % 4 / 2});
  place.local_size = 2;
  place.near = {{2, 3, 6, 7}, {0, 1, 4, 5}};

  const ThreadPlan plan = plan_threads(place);

  CHECK(plan.cpus == CpuIds{2, 3, 6, 7});
  CHECK(plan.threads == 2);
  CHECK_THAT(plan.text, Catch::Contains("those near its GPU first"));
  place.local_rank = 1;
  CHECK(plan_threads(place).cpus == CpuIds{0, 1, 4, 5});
  place.placed = true;  // by the user
  CHECK(plan_threads(place).cpus.size() == 8);
}
