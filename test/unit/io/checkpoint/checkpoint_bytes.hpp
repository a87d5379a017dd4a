#pragma once
#include <cstdint>
#include <cstring>
#include <string>

namespace ringtrain::test {

// Where the fields of a checkpoint's header are: docs/reference/checkpoint-format.md.
inline constexpr std::size_t header_bytes = 128, at_version = 8, at_user_block = 12,
                             at_file_bytes = 16, at_index_bytes = 24, at_outside_hash = 32,
                             at_index_hash = 40, at_run_hash = 48, at_run_id = 56, at_lineage = 96;

template <class T>
T get(const std::string& file, std::size_t at) {
  T value;
  std::memcpy(&value, file.data() + at, sizeof value);
  return value;
}

template <class T>
void put(std::string& file, std::size_t at, T value) {
  std::memcpy(file.data() + at, &value, sizeof value);
}

/// `file`, of version 2, as version 1 had it: no lineage, and the index in its place.
std::string as_version_1(std::string file);

/// The text of the index; of a file with a broken header, as much as there is.
std::string index_of(const std::string& file);

/// `file` with another index text, its user block grown where it must be, and header hashes that
/// go with it. What the text says of offsets is left as it is.
std::string with_index(std::string file, const std::string& text);

/// `file`, which is as long as a header, with the hashes of its user block mended.
std::string with_header_hashes(std::string file);

/// `file` with the hash of each tensor and of all other bytes mended, as far as its index can be
/// read, and those of the user block.
std::string with_all_hashes(std::string file);

}  // namespace ringtrain::test
