#include "monitor/telemetry/nic_counters.hpp"

#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "ringtrain/base/unique_handle.hpp"

namespace ringtrain::monitor {
namespace {

// Beside what a driver said that it will write: it may have grown since, and kernels before 2026
// write what there is, whatever room they were told of.
constexpr std::size_t more_bytes = 65536;

// A question with room for the answer behind it, in units that are aligned for all of them.
template <class Question>
std::vector<std::uint64_t> with_room(const Question& question, std::size_t answer_bytes) {
  std::vector<std::uint64_t> memory((sizeof question + answer_bytes + more_bytes) / 8);
  std::memcpy(memory.data(), &question, sizeof question);
  return memory;
}

template <class Question>
const std::byte* answer_in(const std::vector<std::uint64_t>& memory) {
  return reinterpret_cast<const std::byte*>(memory.data()) + sizeof(Question);
}

}  // namespace

NicCounters::NicCounters(std::string_view ending)
    : socket_(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
  const UniqueHandle<struct if_nameindex*, ::if_freenameindex> all(::if_nameindex());
  for (const auto* one = all.get(); one != nullptr && one->if_name != nullptr; ++one)
    look_at(one->if_name, ending);
}

bool NicCounters::ask(const std::string& interface, void* question) const {
  ifreq request{};
  interface.copy(request.ifr_name, sizeof request.ifr_name - 1);
  request.ifr_data = static_cast<char*>(question);
  return ::ioctl(socket_.get(), SIOCETHTOOL, &request) == 0;
}

std::uint32_t NicCounters::count_of(const std::string& interface) const {
  ethtool_drvinfo driver{};
  driver.cmd = ETHTOOL_GDRVINFO;
  return ask(interface, &driver) ? driver.n_stats : 0;
}

void NicCounters::look_at(const std::string& interface, std::string_view ending) {
  const std::uint32_t count = count_of(interface);
  if (count == 0) return;
  ethtool_gstrings question{};
  question.cmd = ETHTOOL_GSTRINGS;
  question.string_set = ETH_SS_STATS;
  question.len = count;
  auto memory = with_room(question, std::size_t{count} * ETH_GSTRING_LEN);
  if (!ask(interface, memory.data())) return;
  const auto* names = reinterpret_cast<const char*>(answer_in<ethtool_gstrings>(memory));
  Interface found{interface, count, {}};
  for (std::size_t i = 0; i < count; ++i)
    if (const char* name = names + i * ETH_GSTRING_LEN;
        std::string_view(name, ::strnlen(name, ETH_GSTRING_LEN)).ends_with(ending))
      found.places.push_back(i);
  if (!found.places.empty()) interfaces_.push_back(std::move(found));
}

double NicCounters::sum() const {
  double sum = 0;
  ethtool_stats question{};
  question.cmd = ETHTOOL_GSTATS;
  for (const Interface& one : interfaces_) {
    if (count_of(one.name) != one.counters) continue;  // other queues: other places
    question.n_stats = one.counters;
    auto memory = with_room(question, one.counters * sizeof(std::uint64_t));
    if (!ask(one.name, memory.data())) continue;
    const std::uint64_t* values = memory.data() + sizeof(ethtool_stats) / sizeof(std::uint64_t);
    for (const std::size_t place : one.places) sum += static_cast<double>(values[place]);
  }
  return sum;
}

}  // namespace ringtrain::monitor
