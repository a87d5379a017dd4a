#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace ringtrain::host {

/// The folders of the control groups that limit this process's use of `controller` ("cpu",
/// "memory"), of version 2 and 1, its own and all around it. They need not exist.
std::vector<std::string> control_groups(const std::string& controller);

/// Bytes of memory that this host can still give, within this process's control groups: their page
/// cache counts as free.
std::uint64_t available_memory();

}  // namespace ringtrain::host
