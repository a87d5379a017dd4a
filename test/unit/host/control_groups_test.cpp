#include "ringtrain/host/control_groups.hpp"

#include <filesystem>
#include <fstream>

#include "support/catch.hpp"
#include "support/temporary_folder.hpp"

using namespace ringtrain;

namespace {

// A false /proc with hierarchies of control groups, and process 7.
class Tree {
 public:
  void write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = folder_.path() / path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  /// Mounted at ./`point`, from the group `root` on.
  void mount(const std::string& type, const std::string& point, const std::string& root = "/") {
    mounts_ += "31 24 0:27 " + root + " " + (folder_.path() / point).string() +
               " rw,nosuid shared:9 - " + (type == "cgroup2" ? type : "cgroup") + " none rw," +
               type + "\n";
    write("proc/self/mountinfo", "21 24 0:20 / /sys rw - sysfs sysfs rw\n" + mounts_);
  }
  void join(const std::string& groups) const { write("proc/7/cgroup", groups); }
  bool is_frozen(pid_t process = 7) const {
    return host::is_frozen(process, (folder_.path() / "proc").string());
  }

 private:
  TemporaryFolder folder_;
  std::string mounts_;
};

}  // namespace

TEST_CASE("control groups: version 2 tells by its events that a process is frozen") {
  Tree tree;
  tree.mount("cgroup2", "unified");
  tree.join("6:freezer:/\n0::/job/rank\n");

  CHECK_FALSE(tree.is_frozen());  // no such group, or the root, which cannot be frozen
  tree.write("unified/job/rank/cgroup.events", "populated 1\nfrozen 0\n");
  CHECK_FALSE(tree.is_frozen());
  tree.write("unified/job/rank/cgroup.events", "populated 1\nfrozen 1\n");
  CHECK(tree.is_frozen());
  CHECK_FALSE(tree.is_frozen(8));
}

TEST_CASE("control groups: version 1 tells it by the freezer's state") {
  Tree tree;
  tree.mount("cgroup2", "unified");
  tree.mount("memory", "memory");
  tree.mount("freezer", "freezer");
  tree.join("6:freezer:/job\n4:memory:/job\n1:name=systemd:/job\n0::/\n");
  tree.write("memory/job/freezer.state", "FROZEN\n");  // of no meaning there

  tree.write("freezer/job/freezer.state", "THAWED\n");
  CHECK_FALSE(tree.is_frozen());
  for (const char* state : {"FREEZING\n", "FROZEN\n"}) {
    tree.write("freezer/job/freezer.state", state);
    CHECK(tree.is_frozen());
  }
}

TEST_CASE("control groups: a container may see its own group alone, under the host's name") {
  Tree tree;
  tree.mount("cpuset,freezer", "freezer", "/docker/4711");
  tree.join("6:cpuset,freezer:/docker/4711/rank\n");
  tree.write("freezer/rank/freezer.state", "FROZEN\n");

  CHECK(tree.is_frozen());
}
