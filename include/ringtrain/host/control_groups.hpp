#pragma once
#include <string>
#include <vector>

namespace ringtrain::host {

/// The folders of the control groups that limit this process's use of `controller` ("cpu",
/// "memory"), of version 2 and 1, its own and all around it. They need not exist.
std::vector<std::string> control_groups(const std::string& controller);

}  // namespace ringtrain::host
