#include "ringtrain/monitor/channel/rendezvous.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <sstream>

#include "ringtrain/base/hmac.hpp"
#include "ringtrain/host/network_interfaces.hpp"

namespace ringtrain::monitor {
namespace {

bool is_loopback(const Endpoint& endpoint) {
  return endpoint.address.starts_with("127.") || endpoint.address == "::1";
}

}  // namespace

JobToken new_token() {
  JobToken token;
  fill_randomly(token);
  return token;
}

std::string to_text(const Endpoint& endpoint) {
  return fmt::format("{} port {}", endpoint.address, endpoint.port);
}

std::string to_text(const Rendezvous& rendezvous) {
  std::string text(sizeof rendezvous.token, '\0');
  std::memcpy(text.data(), rendezvous.token.data(), sizeof rendezvous.token);
  text += rendezvous.network.empty() ? "?" : rendezvous.network;
  text += fmt::format(" {} {} {}", rendezvous.process.of, rendezvous.process.id,
                      rendezvous.process.started);
  for (const Endpoint& endpoint : rendezvous.endpoints)
    text += fmt::format(" {} {}", endpoint.address, endpoint.port);
  return text;
}

Rendezvous rendezvous_from_text(const std::string& text) {
  Rendezvous rendezvous;
  std::memcpy(rendezvous.token.data(), text.data(), sizeof rendezvous.token);
  std::istringstream words(text.substr(sizeof rendezvous.token));
  ProcessName& process = rendezvous.process;
  words >> rendezvous.network >> process.of >> process.id >> process.started;
  for (Endpoint endpoint; words >> endpoint.address >> endpoint.port;)
    rendezvous.endpoints.push_back(endpoint);
  return rendezvous;
}

std::vector<Endpoint> endpoints_from_here(const Rendezvous& rendezvous) {
  std::vector<Endpoint> endpoints = rendezvous.endpoints;
  if (rendezvous.network == host::network_name())
    std::ranges::stable_partition(endpoints, is_loopback);
  else
    std::erase_if(endpoints, is_loopback);
  return endpoints;
}

std::vector<std::string> listening_addresses(bool ranks_here, bool ranks_elsewhere,
                                             const std::vector<std::string>& own) {
  std::vector<std::string> addresses;
  if (ranks_elsewhere && own.empty()) return addresses;
  if (ranks_here) addresses.emplace_back("127.0.0.1");
  if (ranks_elsewhere) addresses.insert(addresses.end(), own.begin(), own.end());
  return addresses;
}

std::vector<std::string> listening_addresses(const allreduce::MpiSession& session,
                                             const std::string& interfaces) {
  const std::string here = host::network_name();
  const std::vector<std::string> networks = session.gather(here);
  if (session.rank() > 0) return {};
  const auto same = std::ranges::count(networks, here);  // this rank is one of them
  const bool elsewhere = same < static_cast<std::ptrdiff_t>(networks.size());
  return listening_addresses(
      same > 1, elsewhere,
      elsewhere ? host::job_addresses(interfaces) : std::vector<std::string>());
}

}  // namespace ringtrain::monitor
