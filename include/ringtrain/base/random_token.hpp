#pragma once
#include <string>

namespace ringtrain {

/// 16 hexadecimal digits that nobody has drawn before, on any host: 64 bits of the kernel's random
/// numbers. Process ids repeat between hosts, and so do gethostid() and host names.
std::string random_token();

}  // namespace ringtrain
