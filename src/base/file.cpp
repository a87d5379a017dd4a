#include "ringtrain/base/file.hpp"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <climits>

namespace ringtrain {

void write_all(int descriptor, std::string_view text) noexcept {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;  // nobody reads: no reason to stop training
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

// A pipe that can be written to takes PIPE_BUF bytes at once.
void write_if_read(int descriptor, std::string_view text) noexcept {
  constexpr std::size_t most = PIPE_BUF;
  while (!text.empty()) {
    pollfd one{descriptor, POLLOUT, 0};
    if (::poll(&one, 1, 0) <= 0 || (one.revents & POLLOUT) == 0) return;
    const std::string_view part = text.substr(0, std::min(text.size(), most));
    write_all(descriptor, part);
    text.remove_prefix(part.size());
  }
}

}  // namespace ringtrain
