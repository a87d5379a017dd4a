#include "ringtrain/host/network_interfaces.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <span>
#include <system_error>

#include "ringtrain/base/error.hpp"
#include "ringtrain/base/process.hpp"
#include "ringtrain/base/program.hpp"
#include "ringtrain/base/text.hpp"
#include "ringtrain/base/unique_handle.hpp"

namespace ringtrain::host {
namespace {

using InterfaceList = UniqueHandle<ifaddrs*, freeifaddrs>;

// Where an address is in a socket's.
std::span<const std::byte> bytes_of(const sockaddr* address) {
  if (address->sa_family == AF_INET)
    return std::as_bytes(std::span(&reinterpret_cast<const sockaddr_in*>(address)->sin_addr, 1));
  if (address->sa_family == AF_INET6)
    return std::as_bytes(std::span(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, 1));
  return {};
}

bool is_link_local(const sockaddr* address) {
  return address->sa_family == AF_INET6 &&
         IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
}

std::string to_text(const sockaddr* address) {
  const auto bytes = bytes_of(address);
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (!bytes.empty() && !is_link_local(address))
    ::inet_ntop(address->sa_family, bytes.data(), text.data(), text.size());
  return text.data();
}

// `subnet`: "10.0.0.0/16"
bool lies_in(const std::string& subnet, const sockaddr* address) {
  const auto bytes = bytes_of(address);
  const std::size_t slash = subnet.find('/');
  std::array<std::byte, sizeof(in6_addr)> net{};
  if (slash == std::string::npos || bytes.empty() ||
      ::inet_pton(address->sa_family, subnet.substr(0, slash).c_str(), net.data()) != 1)
    return false;
  const auto bits = number_in<std::size_t>(subnet.substr(slash + 1));
  if (!bits || *bits > 8 * bytes.size()) return false;
  const std::size_t whole = *bits / 8;
  const std::byte mask = ~(std::byte{0xff} >> (*bits % 8));
  return std::equal(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(whole),
                    net.begin()) &&
         (*bits % 8 == 0 || (bytes[whole] & mask) == (net[whole] & mask));
}

bool is_wanted(const std::string& interfaces, const ifaddrs& one) {
  if (interfaces.empty()) return true;
  return std::ranges::any_of(split(interfaces, ','), [&](const std::string& wanted) {
    return wanted == one.ifa_name || lies_in(wanted, one.ifa_addr);
  });
}

InterfaceList all_interfaces() {
  ifaddrs* raw = nullptr;
  check_errno(::getifaddrs(&raw), "getifaddrs");
  return InterfaceList(raw);
}

std::string environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Without its addresses.
NetworkInterface described(const ifaddrs& one) {
  const std::string folder = std::string("/sys/class/net/") + one.ifa_name;
  NetworkInterface interface { .name = one.ifa_name, .up = (one.ifa_flags & IFF_UP) != 0 };
  interface.bridge = std::filesystem::exists(folder + "/bridge");
  // fails, or says -1, where it is not known
  if (!(std::ifstream(folder + "/speed") >> interface.mbit) || interface.mbit < 0)
    interface.mbit = 0;
  return interface;
}

}  // namespace

std::vector<std::string> own_addresses(const std::string& interfaces) {
  const InterfaceList list = all_interfaces();
  std::vector<std::string> addresses;
  for (const ifaddrs* i = list.get(); i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr || !(i->ifa_flags & IFF_UP) || (i->ifa_flags & IFF_LOOPBACK) ||
        !is_wanted(interfaces, *i))
      continue;
    if (std::string text = to_text(i->ifa_addr); !text.empty())
      addresses.push_back(std::move(text));
  }
  return addresses;
}

std::vector<std::string> job_addresses(const std::string& interfaces) {
  const std::string include =
      interfaces.empty() ? environment("OMPI_MCA_btl_tcp_if_include") : interfaces;
  const std::string exclude =
      include.empty() ? environment("OMPI_MCA_btl_tcp_if_exclude") : std::string();
  std::vector<std::string> addresses = own_addresses(include);
  if (!exclude.empty())
    for (const std::string& excluded : own_addresses(exclude)) std::erase(addresses, excluded);
  return addresses.empty() ? own_addresses() : addresses;
}

std::vector<std::string> interface_names(const std::string& interfaces) {
  if (interfaces.empty()) return {};
  const InterfaceList list = all_interfaces();
  std::vector<std::string> names;
  for (const ifaddrs* i = list.get(); i != nullptr; i = i->ifa_next)
    if (i->ifa_addr != nullptr && (i->ifa_flags & IFF_UP) && is_wanted(interfaces, *i) &&
        std::ranges::find(names, i->ifa_name) == names.end())
      names.emplace_back(i->ifa_name);
  return names;
}

// Machines made from one image of a running one have its boot_id: so the host's name is part of it.
std::string network_name() {
  std::error_code unknown;
  const auto link = std::filesystem::read_symlink("/proc/self/ns/net", unknown);
  return own_host() + "/" + boot_id() + "/" + link.string();
}

std::vector<NetworkInterface> network_interfaces(const std::string& interfaces) {
  const InterfaceList list = all_interfaces();
  std::vector<NetworkInterface> all;
  for (const ifaddrs* i = list.get(); i != nullptr; i = i->ifa_next) {
    if ((i->ifa_flags & IFF_LOOPBACK) || i->ifa_addr == nullptr || !is_wanted(interfaces, *i))
      continue;
    auto found = std::ranges::find(all, std::string(i->ifa_name), &NetworkInterface::name);
    if (found == all.end()) found = all.insert(found, described(*i));
    std::string address = to_text(i->ifa_addr);
    if (!address.empty() && found->up) found->addresses.push_back(std::move(address));
  }
  return all;
}

}  // namespace ringtrain::host
