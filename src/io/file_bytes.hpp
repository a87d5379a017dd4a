#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace ringtrain {

/// Reads a whole regular file, keeping the memory of `bytes` from file to file. Throws
/// UnreadableSample with the path and the system's words.
void read_file(const std::string& path, std::vector<std::uint8_t>& bytes);

}  // namespace ringtrain
