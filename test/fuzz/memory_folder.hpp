#pragma once
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>

namespace ringtrain::test {

/// Ends the fuzzer's run as a finding.
inline void expect(bool kept) {
  if (!kept) __builtin_trap();
}

inline void write_bytes(const std::filesystem::path& path, std::span<const std::uint8_t> bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
}

/// A folder in memory, for as long as the process lives.
struct MemoryFolder {
  std::filesystem::path path;
  explicit MemoryFolder(const std::string& name)
      : path("/dev/shm/" + name + "." + std::to_string(::getpid())) {
    std::filesystem::create_directory(path);
  }
  ~MemoryFolder() { std::filesystem::remove_all(path); }
  MemoryFolder(const MemoryFolder&) = delete;
  MemoryFolder& operator=(const MemoryFolder&) = delete;
};

}  // namespace ringtrain::test
