#pragma once
#include <string>
#include <vector>

namespace ringtrain {

/// A library, and its versions: of the headers that this program was compiled with, and of what the
/// dynamic linker found for it.
struct LibraryVersion {
  std::string name;
  std::string built_with, runs_with;
};
using LibraryVersions = std::vector<LibraryVersion>;

}  // namespace ringtrain
