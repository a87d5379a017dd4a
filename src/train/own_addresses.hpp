#pragma once
#include <string>
#include <vector>

namespace ringtrain {

/// The addresses, as text, under which other hosts may reach this one: of every network interface
/// that is up, but for loopback and link-local ones. `interfaces`, if not empty, names those to
/// use, or their subnets: "eth0,10.0.0.0/16". Throws Error when the system does not say.
std::vector<std::string> own_addresses(const std::string& interfaces = {});

}  // namespace ringtrain
