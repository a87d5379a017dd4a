#pragma once
#include <string>

#include "ringtrain/io/checkpoint_reader.hpp"

namespace ringtrain {

/// CheckpointFile::open for a name in an open directory; symbolic links are refused.
CheckpointFile open_checkpoint_at(int directory, const std::string& name);

}  // namespace ringtrain
