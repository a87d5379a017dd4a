#pragma once
#include <string>
#include <vector>

namespace ringtrain {

/// The addresses, as text, under which other hosts may reach this one: of every network interface
/// that is up, but for loopback and link-local ones. Throws Error when the system does not say.
std::vector<std::string> own_addresses();

}  // namespace ringtrain
