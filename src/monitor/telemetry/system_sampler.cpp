#include "ringtrain/monitor/telemetry/system_sampler.hpp"

#include <fcntl.h>
#include <sys/resource.h>

#include <array>
#include <cmath>
#include <fstream>
#include <string>

#include "monitor/telemetry/procfs.hpp"
#include "monitor/telemetry/tcp_stats.hpp"

namespace ringtrain::monitor {
namespace {

constexpr double least_s = 0.5;  // between two looks

FileDescriptor open_to_read(const std::string& path) {
  return FileDescriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
}

// The control group of this process, as far as its accounts can be read.
std::string quota_file() {
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const std::string path = line.substr(line.rfind(':') + 1);
    if (line.starts_with("0::")) return "/sys/fs/cgroup" + path + "/cpu.stat";
    if (line.find(":cpu:") != line.npos || line.find(":cpu,") != line.npos)
      return "/sys/fs/cgroup/cpu" + path + "/cpu.stat";
  }
  return {};
}

/// The beginning of a file, up to 16 KiB.
class Text {
 public:
  explicit Text(const FileDescriptor& file) {
    const ssize_t bytes = ::pread(file.get(), bytes_.data(), bytes_.size(), 0);
    if (bytes > 0) text_ = {bytes_.data(), static_cast<std::size_t>(bytes)};
  }
  operator std::string_view() const { return text_; }
  /// `value`, or not a number where nothing could be read.
  double or_unknown(double value) const { return text_.empty() ? std::nan("") : value; }

 private:
  std::array<char, 16384> bytes_;
  std::string_view text_;
};

double cpu_s(const rusage& usage) {
  const auto seconds = [](const timeval& t) { return double(t.tv_sec) + 1e-6 * double(t.tv_usec); };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

}  // namespace

SystemSampler::SystemSampler()
    : stat_(open_to_read("/proc/stat")),
      load_(open_to_read("/proc/loadavg")),
      memory_(open_to_read("/proc/self/statm")),
      interfaces_(open_to_read("/proc/self/net/dev")),
      protocols_(open_to_read("/proc/self/net/snmp")),
      quota_(open_to_read(quota_file())) {}

const SystemSample& SystemSampler::look(double still_s, double no_cpu_s) {
  if (sample_.seconds > 0 && since_last_.elapsed() < least_s) return sample_;
  const double seconds = since_last_.lap();
  sample_.seconds += seconds;
  sample_[SystemMetric::still] = still_s;
  sample_[SystemMetric::no_cpu] = no_cpu_s;
  look_at_host(seconds);
  look_at_process(seconds);
  look_at_gpu(seconds);
  return sample_;
}

void SystemSampler::look_at_host(double seconds) {
  const Text stat(stat_), network(interfaces_), protocols(protocols_);
  const CpuTimes times = host_times(stat, double(::sysconf(_SC_CLK_TCK)));
  const InterfaceTotals interfaces = interface_totals(network);
  sample_[SystemMetric::stolen] = stat.or_unknown(times.stolen);
  sample_[SystemMetric::others] =
      stat.or_unknown(times.busy);  // look_at_process() takes off its own
  sample_[SystemMetric::disk_waits] = stat.or_unknown(times.disk_waits);
  sample_[SystemMetric::runnable] += seconds * runnable_tasks(Text(load_));
  sample_[SystemMetric::network] = network.or_unknown(interfaces.bytes);
  sample_[SystemMetric::network_lost] = network.or_unknown(interfaces.lost);
  sample_[SystemMetric::allowance] = drivers_.allowance_exceeded();
  sample_[SystemMetric::retransmitted] = protocols.or_unknown(retransmitted_segments(protocols));
}

void SystemSampler::look_at_process(double seconds) {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  sample_[SystemMetric::own_cpu] = cpu_s(usage);
  sample_[SystemMetric::others] -= cpu_s(usage);
  sample_[SystemMetric::preempted] = double(usage.ru_nivcsw);
  sample_[SystemMetric::major_faults] = double(usage.ru_majflt);
  sample_[SystemMetric::resident] +=
      seconds * resident_pages(Text(memory_)) * double(::sysconf(_SC_PAGESIZE));
  const Text quota(quota_);
  sample_[SystemMetric::throttled] = quota.or_unknown(throttled_s(quota));
  const TcpStats connections = read_tcp_stats();
  sample_[SystemMetric::round_trip] += seconds * connections.slowest_round_trip_s;
  sample_[SystemMetric::sending] = connections.sending_s;
}

void SystemSampler::look_at_gpu(double seconds) {
  const auto reading = drivers_.gpu();
  if (!reading) return;
  sample_[SystemMetric::gpu_clock] += seconds * reading->clock_hz;
  sample_[SystemMetric::gpu_hot] += seconds * reading->hot;
  sample_[SystemMetric::gpu_power] += seconds * reading->short_of_power;
}

}  // namespace ringtrain::monitor
