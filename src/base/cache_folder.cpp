#include "ringtrain/base/cache_folder.hpp"

#include <cstdlib>
#include <filesystem>

namespace ringtrain {
namespace {

// A path that is not absolute means nothing.
std::filesystem::path folder_in(const char* variable) {
  const char* const text = std::getenv(variable);
  const std::filesystem::path folder(text == nullptr ? "" : text);
  return folder.is_absolute() ? folder : std::filesystem::path();
}

}  // namespace

std::string cache_folder() {
  if (const auto cache = folder_in("XDG_CACHE_HOME"); !cache.empty()) return cache / "ringtrain";
  if (const auto home = folder_in("HOME"); !home.empty()) return home / ".cache" / "ringtrain";
  return {};
}

}  // namespace ringtrain
