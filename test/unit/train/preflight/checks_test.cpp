#include "support/catch.hpp"
#include "train/preflight/doctor.hpp"

using namespace ringtrain;
using namespace ringtrain::train;
using Catch::Contains;
using Weight = Finding::Weight;

namespace {

// A rank with which all is well.
HostFacts well(int host = 0) {
  HostFacts f;
  f.host = "node" + std::to_string(host);
  f.machine = "kernel" + std::to_string(host);
  f.network = f.machine + "net";
  f.host_number = host;
  f.network_of_meeting = f.network;
  f.addresses = {"10.0.0." + std::to_string(host + 1)};
  f.cpus = {0};
  f.cpus_of_job = 8;
  f.interfaces = {{.name = "eth0",
                   .up = true,
                   .mbit = 10'000,
                   .addresses = {"10.0.0." + std::to_string(host + 1)}}};
  f.planned = 1'000'000'000;
  f.available = 64'000'000'000;
  f.shm_free = 1'000'000'000;
  f.files = 1024;
  f.data = "shapes";
  return f;
}

HostFacts on_gpu(int host, std::vector<std::string> gpus) {
  HostFacts f = well(host);
  f.on_gpu = true;
  f.gpus = std::move(gpus);
  return f;
}

std::vector<Finding> findings(const std::vector<HostFacts>& ranks) {
  std::vector<Finding> all;
  for (const CheckResult& one : examine(ranks))
    all.insert(all.end(), one.findings.begin(), one.findings.end());
  return all;
}

// The only one there is.
Finding finding(const std::vector<HostFacts>& ranks) {
  const auto all = findings(ranks);
  CAPTURE(diagnose(ranks).table);
  REQUIRE(all.size() == 1);
  return all[0];
}

}  // namespace

TEST_CASE("doctor: with healthy ranks there is nothing to tell") {
  HostFacts second = well();
  second.cpus = {1};

  CHECK(findings({well()}).empty());
  CHECK(findings({well(), second}).empty());
  CHECK(findings({well(0), well(1), well(2)}).empty());
}

TEST_CASE("doctor: facts arrive as they were found") {
  HostFacts f = on_gpu(3, {"0000:01:00.0"});
  f.failure = "a\nb \xff";
  f.failure_code = 74;

  const HostFacts got = facts_from_text(to_text(f));

  CHECK(got.host == "node3");
  CHECK(got.cpus == std::vector{0});
  CHECK(got.gpus == f.gpus);
  CHECK(got.interfaces.at(0).addresses == std::vector<std::string>{"10.0.0.4"});
  CHECK(got.failure_code == 74);
  CHECK(to_text(got) == to_text(f));
}

TEST_CASE("doctor: a plan that fails on all ranks is told once, and is what the job ends with") {
  std::vector<HostFacts> ranks{well(0), well(1)};
  for (HostFacts& rank : ranks) {
    rank.failure = "open images:/x: no such directory";
    rank.failure_code = 74;
  }

  const Diagnosis d = diagnose(ranks);

  CHECK(d.code == 74);
  CHECK(d.warnings.size() == 1);
  CHECK_THAT(d.stop, Contains("no such directory (rank 0 on node0, rank 1 on node1)"));
  CHECK_THAT(d.table, Contains("stop     options"));
}

TEST_CASE("doctor: machines of one name are told apart by their kernels") {
  std::vector<HostFacts> ranks{well(0), well(1)};
  ranks[1].host = "node0";

  CHECK_THAT(finding(ranks).what, Contains("2 machines are called node0"));
  CHECK(finding(ranks).ranks == std::vector{0, 1});

  ranks[1] = well(1);
  ranks[1].machine = "kernel0";
  CHECK(finding(ranks).weight == Weight::note);
  CHECK_THAT(finding(ranks).what, Contains("2 containers share one machine"));
}

TEST_CASE("doctor: more threads than the mask has cpus") {
  std::vector<HostFacts> ranks{well(), well()};
  ranks[1].cpus = {1};
  for (HostFacts& rank : ranks) rank.threads = 8;

  CHECK_THAT(finding(ranks).what, Contains("8 compute threads a rank") && Contains("on 1 cpu"));
  CHECK(finding(ranks).ranks == std::vector{0, 1});
}

TEST_CASE("doctor: ranks pinned on top of one another while cpus idle") {
  std::vector<HostFacts> ranks{well(), well(), well(1)};

  CHECK_THAT(finding(ranks).what, Contains("2 ranks are pinned on top of one another, on cpus 0, "
                                           "while 7 cpus are idle"));
  CHECK(finding(ranks).ranks == std::vector{0, 1});
}

TEST_CASE("doctor: more ranks than cpus may be meant so") {
  std::vector<HostFacts> ranks{well(), well()};
  for (HostFacts& rank : ranks) rank.cpus_of_job = 1;

  CHECK(finding(ranks).weight == Weight::note);
  CHECK(diagnose(ranks).warnings.empty());
}

TEST_CASE("doctor: ranks that share a GPU, and one that sees none") {
  CHECK(findings({on_gpu(0, {"a", "b"}), on_gpu(0, {"a", "b"})}).size() == 1);  // cpus, not GPUs
  std::vector<HostFacts> ranks{on_gpu(0, {"a"}), on_gpu(0, {"a"})};
  ranks[1].cpus = {1};
  CHECK_THAT(finding(ranks).what, Contains("up to 2 ranks share a GPU"));

  ranks[1].gpus.clear();
  CHECK_THAT(finding(ranks).what, Contains("no GPU is seen"));
  CHECK(finding(ranks).ranks == std::vector{1});
}

TEST_CASE("doctor: ranks of a host that see one GPU each") {
  std::vector<HostFacts> ranks{on_gpu(0, {"a"}), on_gpu(0, {"b"}), on_gpu(1, {"a"})};
  ranks[1].cpus = {1};

  CHECK_THAT(finding(ranks).what, Contains("2 ranks see one GPU each"));
  CHECK_THAT(finding(ranks).advice, Contains("--gpu-bind=none"));
  CHECK(finding(ranks).ranks == std::vector{0, 1});
  CHECK(finding(ranks).weight == Weight::warning);

  for (HostFacts& rank : ranks) rank.gpus = {"a", "b"};
  CHECK(findings(ranks).empty());
  ranks[1].host_number = 1, ranks[1].gpus = {"b"};  // a rank a host and GPU
  ranks.pop_back(), ranks[0].gpus = {"a"};
  CHECK(check_gpus(ranks).findings.empty());
}

TEST_CASE("doctor: what NCCL may sum by, and ranks that are told different things") {
  std::vector<HostFacts> ranks{on_gpu(0, {"a", "b"}), on_gpu(0, {"a", "b"})};
  ranks[1].cpus = {1};
  const auto seen = [&] { return check_gpus(ranks).seen; };

  CHECK(seen() == "rank 0 sees 2; NCCL sums by what it chooses of Ring, Tree, CollNet and NVLS");
  CHECK(check_gpus(std::vector{ranks[0]}).seen == "rank 0 sees 2");
  for (HostFacts& rank : ranks) rank.same_bits = true;
  CHECK_THAT(seen(), Contains("by Ring, as --deterministic wants"));
  for (HostFacts& rank : ranks) rank.nccl_algorithms = "Tree";
  CHECK_THAT(seen(), Contains("by Tree, as NCCL_ALGO says"));
  CHECK(findings(ranks).empty());

  ranks[1].nccl_algorithms = "";
  CHECK(finding(ranks).what == "NCCL_ALGO is not set here and Tree on rank 0");
  ranks[0].nccl_algorithms = "Ring";  // what the other does, too
  CHECK(findings(ranks).empty());
  ranks[0].nccl_algorithms = "Tree";
  CHECK(finding(ranks).ranks == std::vector{1});

  ranks[1] = on_gpu(0, {"a"}), ranks[1].cpus = {1};
  ranks[0].gpus = {"a"}, ranks[0].nccl_algorithms = "", ranks[0].same_bits = false;
  CHECK_THAT(seen(), Contains("by Ring, as ranks share a GPU"));
}

TEST_CASE("doctor: an address that two hosts have is no way between them") {
  std::vector<HostFacts> ranks{well(0), well(1)};
  for (HostFacts& rank : ranks)
    rank.interfaces.push_back(
        {.name = "docker0", .up = true, .bridge = true, .mbit = 0, .addresses = {"172.17.0.1"}});

  CHECK_THAT(finding(ranks).what, Contains("2 hosts have the address 172.17.0.1 (docker0)"));
  CHECK_THAT(finding(ranks).advice, Contains("--interface eth0"));
  CHECK(findings({ranks[0]}).empty());  // one host needs no network

  for (HostFacts& rank : ranks)
    rank.network = rank.machine = "both";  // two containers of one network
  CHECK(findings(ranks).size() == 1);
  CHECK(finding(ranks).weight == Weight::note);
}

TEST_CASE("doctor: slow networks, by themselves or beside others") {
  std::vector<HostFacts> ranks{well(0), well(1)};
  ranks[1].interfaces[0].mbit = 1000;
  CHECK_THAT(finding(ranks).what, Contains("at 1000 Mbit/s, elsewhere at 10000"));
  CHECK(finding(ranks).ranks == std::vector{1});

  for (HostFacts& rank : ranks) rank.interfaces[0].mbit = 100;
  CHECK(finding(ranks).ranks == std::vector{0, 1});

  for (HostFacts& rank : ranks) rank.interfaces[0].mbit = 0;  // nobody says
  CHECK(findings(ranks).empty());
}

TEST_CASE("doctor: a host without a network that is up") {
  std::vector<HostFacts> ranks{well(0), well(1)};
  ranks[1].interfaces[0].up = false;

  CHECK_THAT(finding(ranks).what, Contains("(eth0)"));
  CHECK(finding(ranks).ranks == std::vector{1});
}

TEST_CASE(
    "doctor: where rank 0 listens, and that it does so everywhere where it knows no address") {
  std::vector<HostFacts> ranks{well(0), well(1), well(0)};
  ranks[2].cpus = {1};
  CHECK_THAT(check_network(ranks).seen, Contains("rank 0 listens on 127.0.0.1 10.0.0.1"));
  CHECK_THAT(check_network(std::vector{ranks[0], ranks[1]}).seen, Contains("listens on 10.0.0.1"));
  CHECK_THAT(check_network(std::vector{ranks[0], ranks[2]}).seen, Contains("listens on 127.0.0.1"));
  CHECK_THAT(check_network(std::vector{ranks[0]}).seen, !Contains("listens"));

  ranks[0].addresses.clear();
  CHECK_THAT(check_network(ranks).seen, Contains("rank 0 listens on all interfaces"));
  CHECK_THAT(finding(ranks).what, Contains("knows no address of its own"));
  CHECK(finding(ranks).weight == Weight::note);
}

TEST_CASE("doctor: EFA wants NCCL's plugin, where GPUs train") {
  HostFacts f = on_gpu(0, {"a"});
  f.efa_devices = f.fast_fabric = 2;
  CHECK_THAT(finding({f}).what, Contains("plugin for EFA"));

  f.efa_plugin = true;
  CHECK(findings({f}).empty());
}

TEST_CASE("doctor: the ranks of a host must fit its memory together") {
  std::vector<HostFacts> ranks{well(), well(), well(1)};
  ranks[1].cpus = {1};
  for (HostFacts& rank : ranks) rank.available = 1'500'000'000;

  CHECK_THAT(finding(ranks).what, Contains("about 2.0 GB") && Contains("1.5 GB are left"));
  CHECK(finding(ranks).ranks == std::vector{0, 1});
}

TEST_CASE("doctor: a small /dev/shm matters to several ranks only") {
  std::vector<HostFacts> ranks{well(), well()};
  ranks[1].cpus = {1};
  for (HostFacts& rank : ranks) rank.shm_free = 4'000'000;

  CHECK_THAT(finding(ranks).what, Contains("4 MB free, Open MPI takes about 8 MB"));
  CHECK(findings({ranks[0]}).empty());
}

TEST_CASE("doctor: limits of files and of locked memory") {
  HostFacts f = well();
  f.files = 64;
  CHECK_THAT(finding({f}).what, Contains("may open 64 files"));

  std::vector<HostFacts> ranks{well(0), well(1)};
  ranks[1].fast_fabric = 1;
  ranks[1].lockable = 8'000'000;
  CHECK_THAT(finding(ranks).what, Contains("only 8 MB of memory may be locked"));
  CHECK(finding(ranks).ranks == std::vector{1});
}

TEST_CASE("doctor: a sample that cannot be read") {
  HostFacts f = well();
  f.unreadable = {"a/1.jpg: not an image"};

  CHECK_THAT(finding({f}).what, Contains("a/1.jpg: not an image"));
}

TEST_CASE("doctor: room for the checkpoints that stay and one more") {
  HostFacts f = well();
  f.checkpoint_dir = "runs/a";
  f.checkpoint = 100;
  f.keep = 3;
  f.checkpoint_room = 400;
  CHECK(findings({f}).empty());

  f.checkpoint_room = 399;
  CHECK_THAT(finding({f}).what, Contains("room for 3 more checkpoints, --keep 3 needs 4"));
  f.checkpoints_there = 1;
  CHECK(findings({f}).empty());

  f.checkpoints_there = 9;
  f.checkpoint_room = 99;
  CHECK_THAT(finding({f}).what, Contains("room for 0 more checkpoints, --keep 3 needs 1"));

  f.checkpoint_room = unknown_room;
  CHECK(findings({f}).empty());
}

TEST_CASE("doctor: ranks on many hosts are counted, not listed") {
  std::vector<HostFacts> ranks;
  for (int host = 0; host < 64; ++host) {
    ranks.push_back(well(host));
    ranks.back().files = 10;
  }

  CHECK_THAT(diagnose(ranks).warnings.at(0), Contains("(ranks 0-63 on 64 hosts)"));
}
