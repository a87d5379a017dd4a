// Preloaded (LD_PRELOAD): reads of the files in a folder fail, as those of a disk or a server in
// trouble do.
//   FAILING_READS="FOLDER FIRST TIMES ERRNO"  from the FIRST read on, so many in a row; ERRNO 0:
//   they find nothing, as behind the file's end. With ESTALE (116) they fail until the file is
//   opened anew, however often, and TIMES counts files.
//   FAILING_LISTINGS="FOLDER TIMES ERRNO"  so many listings of that folder fail.
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/types.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

constexpr int most_descriptors = 4096;

struct Plan {
  char folder[PATH_MAX] = "";
  long first = 0, times = 0;
  int error = 0;
  Plan() {
    const char* text = std::getenv("FAILING_READS");
    if (text == nullptr ||
        std::sscanf(text, "%4000s %ld %ld %d", folder, &first, &times, &error) != 4)
      folder[0] = '\0';
  }
};

std::atomic<long> reads{0}, went_stale{0};
std::array<std::atomic<bool>, most_descriptors> stale;

const Plan& plan() {
  static const Plan once;
  return once;
}

template <class Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

bool is_meant(int file) {
  if (plan().folder[0] == '\0' || file < 0 || file >= most_descriptors) return false;
  char link[64], path[PATH_MAX];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  const ssize_t length = ::readlink(link, path, sizeof path - 1);
  if (length <= 0) return false;
  path[length] = '\0';
  return std::strncmp(path, plan().folder, std::strlen(plan().folder)) == 0;
}

/// Whether this read fails; errno says how, 0: it finds nothing.
bool fails(int file) {
  if (!is_meant(file)) return false;
  const long number = ++reads;
  errno = plan().error;
  if (plan().error != ESTALE) return number >= plan().first && number < plan().first + plan().times;
  if (number >= plan().first && !stale[file] && went_stale < plan().times) {
    ++went_stale;
    stale[file] = true;
  }
  return stale[file];
}

ssize_t failure() { return errno == 0 ? 0 : -1; }

/// Whether this listing fails.
bool listing_fails(DIR* listing) {
  static std::atomic<long> failed{0};
  const char* text = std::getenv("FAILING_LISTINGS");
  char folder[PATH_MAX], link[64], path[PATH_MAX];
  long times = 0;
  int error = 0;
  if (text == nullptr || std::sscanf(text, "%4000s %ld %d", folder, &times, &error) != 3)
    return false;
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", ::dirfd(listing));
  const ssize_t length = ::readlink(link, path, sizeof path - 1);
  if (length <= 0) return false;
  path[length] = '\0';
  if (std::strcmp(path, folder) != 0 || failed >= times) return false;
  ++failed;
  errno = error;
  return true;
}

int opened(int file) {
  if (file >= 0 && file < most_descriptors) stale[file] = false;
  return file;
}

}  // namespace

extern "C" {

ssize_t read(int file, void* into, size_t count) {
  if (fails(file)) return failure();
  return next<ssize_t (*)(int, void*, size_t)>("read")(file, into, count);
}
ssize_t pread(int file, void* into, size_t count, off_t offset) {
  if (fails(file)) return failure();
  return next<ssize_t (*)(int, void*, size_t, off_t)>("pread")(file, into, count, offset);
}
ssize_t pread64(int file, void* into, size_t count, off64_t offset) {
  if (fails(file)) return failure();
  return next<ssize_t (*)(int, void*, size_t, off64_t)>("pread64")(file, into, count, offset);
}
int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = va_arg(arguments, mode_t);
  va_end(arguments);
  return opened(next<int (*)(const char*, int, ...)>("open")(path, flags, mode));
}
int open64(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = va_arg(arguments, mode_t);
  va_end(arguments);
  return opened(next<int (*)(const char*, int, ...)>("open64")(path, flags, mode));
}
dirent* readdir(DIR* listing) {
  if (listing_fails(listing)) return nullptr;
  return next<dirent* (*)(DIR*)>("readdir")(listing);
}
dirent64* readdir64(DIR* listing) {
  if (listing_fails(listing)) return nullptr;
  return next<dirent64* (*)(DIR*)>("readdir64")(listing);
}
// What comes next by this number may have been opened by a bare system call.
int close(int file) { return next<int (*)(int)>("close")(opened(file)); }
int dup3(int from, int to, int flags) {
  return opened(next<int (*)(int, int, int)>("dup3")(from, to, flags));
}
}
