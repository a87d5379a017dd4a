#pragma once
#include <string>

namespace ringtrain {

/// Hash of the running program's file: ranks with different builds must not train together.
std::string program_hash();
/// Names this run by time, process and host.
std::string run_id(const std::string& host);

}  // namespace ringtrain
