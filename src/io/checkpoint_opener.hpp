#pragma once
#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "ringtrain/io/checkpoint_reader.hpp"

namespace ringtrain {

/// CheckpointFile::open for a name in an open directory; symbolic links are refused. Messages call
/// the file `folder`/`name`.
CheckpointFile open_checkpoint_at(int directory, const std::string& name,
                                  const std::filesystem::path& folder = {},
                                  WorkProgress* progress = nullptr);

/// The lineage that the file's header tells, whatever else is wrong with the file; nothing where
/// its header cannot be read.
std::optional<std::string> lineage_at(int directory, const std::string& name);

/// The first ten of `all`, and how many more there are.
std::string first_ten(std::span<const std::string> all);

/// What inspect() says of a directory.
std::string inspect_folder(const std::filesystem::path& directory);

}  // namespace ringtrain
