#pragma once
#include <string>

namespace ringtrain {

/// This host's processor as it calls itself: "AMD EPYC 9R14"; "a CPU" where it does not say.
std::string cpu_name();

}  // namespace ringtrain
