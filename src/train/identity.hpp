#pragma once
#include <string>

namespace ringtrain {

/// Hash of the running program's file: ranks with different builds must not train together.
std::string program_hash();
/// Names this run: host, process and time.
std::string run_id();

}  // namespace ringtrain
