#include "train/own_addresses.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>

#include "ringtrain/base/error.hpp"
#include "ringtrain/base/text.hpp"
#include "ringtrain/base/unique_handle.hpp"

namespace ringtrain {
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

}  // namespace

std::vector<std::string> own_addresses(const std::string& interfaces) {
  ifaddrs* raw = nullptr;
  check_errno(::getifaddrs(&raw), "getifaddrs");
  const InterfaceList list(raw);
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

}  // namespace ringtrain
