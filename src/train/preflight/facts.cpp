#include "train/preflight/facts.hpp"

#include <dlfcn.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "ringtrain/allreduce/nccl/gpu_assignment.hpp"
#include "ringtrain/base/process.hpp"
#include "ringtrain/base/unique_handle.hpp"
#include "ringtrain/host/control_groups.hpp"
#include "ringtrain/host/launcher.hpp"
#include "train/preflight/memory_report.hpp"

namespace nlohmann {

template <>
struct adl_serializer<ringtrain::host::NetworkInterface> {
  static void to_json(json& out, const ringtrain::host::NetworkInterface& from) {
    out = {from.name, from.up, from.bridge, from.mbit, from.addresses};
  }
  static void from_json(const json& in, ringtrain::host::NetworkInterface& to) {
    to = {in.at(0), in.at(1), in.at(2), in.at(3), in.at(4)};
  }
};

}  // namespace nlohmann

namespace ringtrain::train {

namespace {

namespace fs = std::filesystem;

/// Bytes that a user may still write below `path`, or below the nearest folder that is there.
/// File systems without blocks, as /proc and some of memory, name no limit.
std::uint64_t room_in(fs::path path) {
  struct statvfs disk {};
  std::error_code ignored;
  path = fs::absolute(path, ignored);
  while (::statvfs(path.c_str(), &disk) != 0)
    if (path == path.parent_path())
      return 0;
    else
      path = path.parent_path();
  if (disk.f_blocks == 0) return unknown_room;
  return std::uint64_t{disk.f_bavail} * disk.f_frsize;
}

std::uint64_t limit_of(__rlimit_resource resource) {
  rlimit limit{};
  return ::getrlimit(resource, &limit) == 0 ? limit.rlim_cur : 0;
}

int devices_in(const std::string& folder, std::string_view prefix) {
  std::error_code none;
  int count = 0;
  for (const auto& entry : fs::directory_iterator(folder, none))
    count += entry.path().filename().string().starts_with(prefix);
  return count;
}

int checkpoints_in(const std::string& folder) {
  std::error_code none;
  int count = 0;
  for (const auto& entry : fs::directory_iterator(folder, none)) {
    const fs::path name = entry.path().filename();
    count += name.string().starts_with("step-") && name.extension() == ".h5";
  }
  return count;
}

int close_library(void* library) { return ::dlclose(library); }
using Library = UniqueHandle<void*, close_library>;

// As NCCL looks for its way to networks of others.
bool finds_nccl_plugin() {
  std::vector<std::string> names{"libnccl-net-ofi.so", "libnccl-net-aws-ofi.so", "libnccl-net.so"};
  if (const char* named = std::getenv("NCCL_NET_PLUGIN"); named != nullptr && *named != 0) {
    names.insert(names.begin(), std::string("libnccl-net-") + named + ".so");
    names.insert(names.begin(), named);
  }
  return std::ranges::any_of(names, [](const std::string& name) {
    return Library(::dlopen(name.c_str(), RTLD_LAZY | RTLD_LOCAL)).get() != nullptr;
  });
}

void find_cpus(HostFacts& facts, const host::ThreadPlan& threads) {
  facts.threads = threads.threads;
  facts.cpus = threads.cpus;
  facts.cpus_of_job =
      static_cast<int>(host::affinity(host::launcher_process().value_or(::getppid())).size());
}

void find_network(HostFacts& facts, const config::Options& options) {
  std::error_code unknown;
  facts.network = facts.machine + fs::read_symlink("/proc/self/ns/net", unknown).string();
  facts.interfaces = host::network_interfaces(options.interface);
  facts.network_of_meeting = host::network_name();
  facts.addresses = host::job_addresses(options.interface);
  facts.efa_devices = devices_in("/sys/class/infiniband", "efa");
  facts.fast_fabric = devices_in("/sys/class/infiniband", "");
  facts.efa_plugin = facts.efa_devices > 0 && finds_nccl_plugin();
}

void read_some(const io::Dataset& data, std::vector<std::string>& unreadable) {
  for (const std::uint64_t sample : {std::uint64_t{0}, data.size() - 1}) try {
      static_cast<void>(data.read(sample));
    } catch (const Error& failure) {
      unreadable.emplace_back(failure.what());
    }
}

}  // namespace

HostFacts collect_host_facts(const config::Options& options, const host::ThreadPlan& threads,
                             const allreduce::MpiSession& session) {
  HostFacts facts;
  facts.host = session.host();
  facts.machine = boot_id();
  facts.host_number = session.host_of()[static_cast<std::size_t>(session.rank())];
  find_cpus(facts, threads);
  find_network(facts, options);
  facts.on_gpu = options.device == config::Device::cuda;
  if (facts.on_gpu) {
    facts.gpus = allreduce::visible_gpus();
    facts.same_bits = options.deterministic;
    if (const char* set = std::getenv("NCCL_ALGO"); set != nullptr) facts.nccl_algorithms = set;
  }
  facts.threads_share_mpi = session.threads_share_mpi();
  facts.available = host::available_memory();
  facts.shm_free = room_in("/dev/shm");
  facts.files = limit_of(RLIMIT_NOFILE);
  facts.lockable = limit_of(RLIMIT_MEMLOCK);
  return facts;
}

void add_plan(HostFacts& facts, const RunPlan& plan, const allreduce::MpiSession& session,
              WorkProgress& progress) {
  const config::Options& o = plan.options;
  progress.at(Work::plan, o.model);
  if (!facts.on_gpu)
    facts.planned = static_cast<std::uint64_t>(rank_memory(plan, &progress).total());
  facts.data = plan.data().description();
  progress.at(Work::open, o.data);
  if (session.local_rank() == 0)
    for (const io::Dataset* data : {plan.training.get(), plan.evaluation.get()})
      if (data != nullptr) read_some(*data, facts.unreadable);
  if (session.rank() > 0 || o.checkpoint_dir.empty() || o.eval_only) return;
  progress.at(Work::open, o.checkpoint_dir);
  facts.checkpoint_dir = o.checkpoint_dir;
  facts.checkpoint = static_cast<std::uint64_t>(checkpoint_bytes(plan));
  facts.checkpoint_room = room_in(o.checkpoint_dir);
  facts.checkpoints_there = checkpoints_in(o.checkpoint_dir);
  facts.keep = o.keep;
}

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(HostFacts, host, machine, host_number, threads, cpus,
                                   cpus_of_job, on_gpu, gpus, same_bits, nccl_algorithms, network,
                                   interfaces, network_of_meeting, addresses, efa_devices,
                                   efa_plugin, fast_fabric, threads_share_mpi, planned, available,
                                   shm_free, files, lockable, data, unreadable, checkpoint_dir,
                                   checkpoint, checkpoint_room, checkpoints_there, keep, failure,
                                   failure_code)

std::string to_text(const HostFacts& facts) {
  return nlohmann::json(facts).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

HostFacts facts_from_text(const std::string& text) {
  return nlohmann::json::parse(text).get<HostFacts>();
}

}  // namespace ringtrain::train
