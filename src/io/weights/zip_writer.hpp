#pragma once
#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

namespace ringtrain::io {

/// Writes a zip file as torch does: nothing is compressed, and each file begins at a multiple of 64
/// bytes, so that it can be mapped into memory.
class ZipWriter {
 public:
  explicit ZipWriter(std::ostream& out) : out_(out) {}
  /// A name of ASCII.
  void add(const std::string& name, std::string_view bytes);
  /// Writes the directory, behind all files.
  void finish();

  /// What a file of these names and sizes may have, without zip's 64-bit extensions.
  static constexpr std::uint64_t most_bytes = 0xffffffff;

 private:
  struct Entry {
    std::string name;
    std::uint32_t crc = 0, size = 0, offset = 0;
  };
  void put(std::string_view bytes);

  std::ostream& out_;
  std::uint64_t at_ = 0;
  std::vector<Entry> entries_;
};

}  // namespace ringtrain::io
