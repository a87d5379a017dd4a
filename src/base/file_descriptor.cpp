#include "ringtrain/base/file_descriptor.hpp"

#include <cerrno>

namespace ringtrain {

void write_all(int descriptor, std::string_view text) noexcept {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;  // nobody reads: no reason to stop training
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

}  // namespace ringtrain
