#include "ringtrain/host/terminal.hpp"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "ringtrain/base/file.hpp"
#include "ringtrain/host/launcher.hpp"

namespace ringtrain::host {
namespace {

std::string path_of(const std::string& process, int descriptor) {
  char target[256];
  const std::string link = "/proc/" + process + "/fd/" + std::to_string(descriptor);
  const ssize_t size = ::readlink(link.c_str(), target, sizeof target);
  return size < 0 ? "" : std::string(target, static_cast<std::size_t>(size));
}

bool is_terminal(const std::string& path) {
  return path.starts_with("/dev/pts/") || path.starts_with("/dev/tty") || path == "/dev/console";
}

std::size_t columns_of(const std::string& path) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC));
  winsize size{};
  if (file.get() < 0 || ::ioctl(file.get(), TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

}  // namespace

Terminal find_terminal() {
  const auto launcher = launcher_process();
  const std::string process = launcher ? std::to_string(*launcher) : "self";
  const std::string out = path_of(process, STDOUT_FILENO), err = path_of(process, STDERR_FILENO);
  const char* kind = std::getenv("TERM");
  const bool dumb = kind != nullptr && std::string(kind) == "dumb";
  // mpirun gives ranks a terminal for standard output, whatever its own is. Where that is gone, a
  // script between the two redirects it, and nothing but lines belongs there.
  if (launcher && ::isatty(STDOUT_FILENO) == 0) return {};
  Terminal terminal{.out = is_terminal(out), .err = is_terminal(err) && !dumb};
  const char* const no_colour = std::getenv("NO_COLOR");
  terminal.colours = terminal.err && (no_colour == nullptr || *no_colour == 0);
  if (terminal.err) terminal.columns = columns_of(err);
  return terminal;
}

}  // namespace ringtrain::host
