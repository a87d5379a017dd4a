#pragma once
#include <string>

namespace ringtrain::config {

/// What `--version` prints: version, commit, and what this program was built with and runs with.
/// Needs no MPI session and no GPU.
std::string version_text();
/// The same as one line of JSON.
std::string version_json();

}  // namespace ringtrain::config
