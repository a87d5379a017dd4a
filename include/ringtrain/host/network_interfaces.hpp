#pragma once
#include <string>
#include <vector>

namespace ringtrain::host {

/// The addresses, as text, under which other hosts may reach this one: of every network interface
/// that is up, but for loopback and link-local ones. `interfaces`, if not empty, names those to
/// use, or their subnets: "eth0,10.0.0.0/16". Throws Error when the system does not say.
std::vector<std::string> own_addresses(const std::string& interfaces = {});

/// Those of own_addresses() that the job uses: of `interfaces`, where it names some; else as Open
/// MPI's btl_tcp_if_include and btl_tcp_if_exclude are in the environment, where mpirun puts them;
/// all, where these leave none. Throws Error as it does.
std::vector<std::string> job_addresses(const std::string& interfaces);

/// The names of this host's interfaces that `interfaces` names, as itself or by a subnet of theirs:
/// "eth0,10.0.0.0/16" may be eth0 and eth1. Of those that are up, the loopback among them; none
/// where it is empty. Throws Error as own_addresses() does.
std::vector<std::string> interface_names(const std::string& interfaces);

/// What no two hosts or network namespaces share: a word.
std::string network_name();

/// A network interface of this host.
struct NetworkInterface {
  std::string name = {};
  bool up = false;
  bool bridge = false;                      ///< of virtual machines or containers, as docker0
  int mbit = 0;                             ///< megabits a second; 0: it does not say
  std::vector<std::string> addresses = {};  ///< those that own_addresses() would give
};

/// All that own_addresses() looks at, and those that are down. Throws Error as it does.
std::vector<NetworkInterface> network_interfaces(const std::string& interfaces = {});

}  // namespace ringtrain::host
