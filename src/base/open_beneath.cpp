#include "ringtrain/base/open_beneath.hpp"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace ringtrain {
namespace {

int open_plain_name(int directory, const char* name, int flags, mode_t mode) {
  if (std::strchr(name, '/') != nullptr || std::strcmp(name, "..") == 0) {
    errno = EXDEV;
    return -1;
  }
  return ::openat(directory, name, flags | O_NOFOLLOW, mode);
}

}  // namespace

int open_beneath(int directory, const char* name, int flags, mode_t mode) {
  open_how how{};
  how.flags = static_cast<unsigned>(flags | O_NOFOLLOW);
  how.mode = mode;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  const long fd = ::syscall(SYS_openat2, directory, name, &how, sizeof how);
  // sandboxes answer EPERM to calls that they do not know; where it is the file's, it comes again
  if (fd < 0 && (errno == ENOSYS || errno == EPERM))
    return open_plain_name(directory, name, flags, mode);
  return static_cast<int>(fd);
}

}  // namespace ringtrain
