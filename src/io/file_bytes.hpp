#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ringtrain/base/work_progress.hpp"

namespace ringtrain {

/// Throws Error(Exit::data) where `error`, an errno, says that too many files are open: no damage
/// of a sample, and the next one would fail, too.
void check_open_files(int error, std::string_view call);

/// Reads a whole regular file, keeping the memory of `bytes` from file to file. Throws
/// UnreadableSample with the path and the system's words, and as check_open_files() does. Of each
/// MiB `progress` hears; null: nobody.
void read_file(const std::string& path, std::vector<std::uint8_t>& bytes,
               WorkProgress* progress = nullptr);

}  // namespace ringtrain
