#include "train/own_addresses.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <array>

#include "ringtrain/base/error.hpp"
#include "ringtrain/base/unique_handle.hpp"

namespace ringtrain {
namespace {

using InterfaceList = UniqueHandle<ifaddrs*, freeifaddrs>;

std::string to_text(const sockaddr* address) {
  const void* bytes = nullptr;
  if (address->sa_family == AF_INET) {
    bytes = &reinterpret_cast<const sockaddr_in*>(address)->sin_addr;
  } else if (address->sa_family == AF_INET6) {
    const in6_addr& wide = reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
    if (!IN6_IS_ADDR_LINKLOCAL(&wide)) bytes = &wide;
  }
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (bytes != nullptr) ::inet_ntop(address->sa_family, bytes, text.data(), text.size());
  return text.data();
}

}  // namespace

std::vector<std::string> own_addresses() {
  ifaddrs* raw = nullptr;
  check_errno(::getifaddrs(&raw), "getifaddrs");
  const InterfaceList list(raw);
  std::vector<std::string> addresses;
  for (const ifaddrs* i = list.get(); i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr || !(i->ifa_flags & IFF_UP) || (i->ifa_flags & IFF_LOOPBACK))
      continue;
    if (std::string text = to_text(i->ifa_addr); !text.empty())
      addresses.push_back(std::move(text));
  }
  return addresses;
}

}  // namespace ringtrain
