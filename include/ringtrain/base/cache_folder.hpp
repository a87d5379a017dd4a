#pragma once
#include <string>

namespace ringtrain {

/// Where this user's caches are: $XDG_CACHE_HOME/ringtrain or ~/.cache/ringtrain, by the XDG base
/// directory specification. Perhaps not there yet; empty where the environment names no place.
std::string cache_folder();

}  // namespace ringtrain
