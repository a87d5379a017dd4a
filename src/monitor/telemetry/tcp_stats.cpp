#include "monitor/telemetry/tcp_stats.hpp"

#include <dirent.h>
#include <linux/tcp.h>  // newer fields of tcp_info than netinet/tcp.h's
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "ringtrain/base/unique_handle.hpp"

namespace ringtrain::monitor {
namespace {

using Name = int(int, sockaddr*, socklen_t*);

/// An address without its port.
struct Address {
  sockaddr_storage bytes{};
  bool operator==(const Address& other) const {
    return std::memcmp(&bytes, &other.bytes, sizeof bytes) == 0;
  }
};

Address address(int descriptor, Name* of) {
  Address found;
  socklen_t size = sizeof found.bytes;
  auto* const generic = reinterpret_cast<sockaddr*>(&found.bytes);
  if (of(descriptor, generic, &size) != 0) return {};
  std::memset(generic->sa_data, 0, 2);  // the port comes first in all kinds
  return found;
}

bool leads_elsewhere(int descriptor) {
  return address(descriptor, ::getpeername) != address(descriptor, ::getsockname);
}

}  // namespace

// Another thread may close a descriptor meanwhile, or open another with its number: then one look
// tells nothing or of another connection, no more.
TcpStats read_tcp_stats() {
  constexpr unsigned lately_ms = 2000;
  TcpStats all;
  const UniqueHandle<DIR*, ::closedir> descriptors(::opendir("/proc/self/fd"));
  if (descriptors.get() == nullptr) return all;
  while (const dirent* entry = ::readdir(descriptors.get())) {
    const int descriptor = std::atoi(entry->d_name);
    tcp_info info{};
    socklen_t size = sizeof info;
    if (::getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) continue;
    if (info.tcpi_last_data_sent < lately_ms)
      all.slowest_round_trip_s = std::max(all.slowest_round_trip_s, 1e-6 * info.tcpi_rtt);
    if (leads_elsewhere(descriptor)) all.sending_s += 1e-6 * double(info.tcpi_busy_time);
  }
  return all;
}

}  // namespace ringtrain::monitor
