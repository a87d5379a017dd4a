#pragma once
#include <sys/types.h>

namespace ringtrain {

/// openat() that never leaves `directory`: no symbolic link, `..`, absolute path or link of /proc
/// is followed. Returns -1 with errno, ELOOP for a link and EXDEV for a way out. Where the kernel
/// has no openat2 or a sandbox forbids it, `name` must be a plain file name.
int open_beneath(int directory, const char* name, int flags, mode_t mode = 0);

}  // namespace ringtrain
