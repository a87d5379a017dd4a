#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace ringtrain::io {

/// What a folder lies on.
struct FileSystem {
  std::string name;  ///< as mount(8) calls it, or its number
  /// Whether this host's kernel alone writes there, so that its locks tell of every writer.
  bool is_local = false;
};

/// The file system of the open file or folder `fd`. One not known to be local counts as shared.
FileSystem file_system_of(int fd);

/// Bytes a user may still write; nothing where the file system does not say.
std::optional<std::uint64_t> free_bytes(int directory);
/// The same in words, for messages; and that no inodes are free, if so.
std::string free_space(int directory);

}  // namespace ringtrain::io
