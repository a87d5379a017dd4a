// slowfs BACKING MOUNT FAULTS: shows the directory BACKING at MOUNT as a disk with the faults that
// the file FAULTS names (see faults.hpp), which may change at any time. Stays in the foreground;
// SIGTERM unmounts it and ends what hangs.
#define FUSE_USE_VERSION 312
#include <dirent.h>
#include <fcntl.h>
#include <fuse.h>
#include <fuse_lowlevel.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <mutex>
#include <set>

#include "faults.hpp"
#include "ringtrain/base/unique_handle.hpp"

namespace {

using ringtrain::Faults;

struct Disk {
  int backing;
  Faults faults;
  std::mutex mutex{};
  std::set<ino_t> own{};  // files that came by this mount
};

Disk& disk() { return *static_cast<Disk*>(fuse_get_context()->private_data); }

const char* below(const char* path) { return path[1] == '\0' ? "." : path + 1; }

/// FUSE's form of a system call's result.
template <class Result>
int answer(Result result) {
  return result < 0 ? -errno : static_cast<int>(result);
}

int suffer(const char* call, std::size_t bytes = 0) {
  fuse_session* session = fuse_get_session(fuse_get_context()->fuse);
  return -disk().faults.suffer(call, bytes, [&] { return fuse_session_exited(session) != 0; });
}

/// As on a network file system whose names are cached: what another mount made is not there yet.
bool not_seen_yet(const struct stat& status) {
  const double late_s = disk().faults.late_s();
  if (late_s <= 0 || S_ISDIR(status.st_mode)) return false;
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  const double age = static_cast<double>(now.tv_sec - status.st_ctim.tv_sec) +
                     1e-9 * static_cast<double>(now.tv_nsec - status.st_ctim.tv_nsec);
  const std::scoped_lock lock(disk().mutex);
  return age < late_s && !disk().own.contains(status.st_ino);
}

int look_at(const char* path, struct stat* status) {
  const int result = answer(::fstatat(disk().backing, below(path), status, AT_SYMLINK_NOFOLLOW));
  return result == 0 && not_seen_yet(*status) ? -ENOENT : result;
}

int stat_of(const char* path, struct stat* status, fuse_file_info* file) {
  if (const int error = suffer("stat")) return error;
  if (file != nullptr) return answer(::fstat(static_cast<int>(file->fh), status));
  return look_at(path, status);
}

int list(const char* path, void* buffer, fuse_fill_dir_t fill, off_t, fuse_file_info*,
         fuse_readdir_flags) {
  if (const int error = suffer("list")) return error;
  const int file = ::openat(disk().backing, below(path), O_RDONLY | O_DIRECTORY);
  const ringtrain::UniqueHandle<DIR*, ::closedir> directory(::fdopendir(file));
  if (directory.get() == nullptr) return -errno;
  while (const dirent* entry = ::readdir(directory.get())) {
    struct stat status {};
    const bool there = ::fstatat(file, entry->d_name, &status, AT_SYMLINK_NOFOLLOW) == 0;
    if (there && !not_seen_yet(status))
      fill(buffer, entry->d_name, nullptr, 0, fuse_fill_dir_flags{});
  }
  return 0;
}

int create(const char* path, mode_t mode, fuse_file_info* file) {
  if (const int error = suffer("open")) return error;
  // libfuse's memory is not aligned for direct I/O
  const int opened = ::openat(disk().backing, below(path), file->flags & ~O_DIRECT, mode);
  if (opened < 0) return -errno;
  file->fh = static_cast<std::uint64_t>(opened);
  if (struct stat status{}; (file->flags & O_CREAT) != 0 && ::fstat(opened, &status) == 0) {
    const std::scoped_lock lock(disk().mutex);
    disk().own.insert(status.st_ino);
  }
  return 0;
}

int open_existing(const char* path, fuse_file_info* file) {
  struct stat status {};
  if (const int error = look_at(path, &status)) return error;
  return create(path, 0, file);
}

/// On the backing file, so that other mounts of it see the lock.
int lock_file(const char*, fuse_file_info* file, int operation) {
  switch (disk().faults.locks()) {
    case Faults::Locks::none:
      return 0;
    case Faults::Locks::refused:
      return -ENOLCK;
    case Faults::Locks::work:
      break;
  }
  return answer(::flock(static_cast<int>(file->fh), operation));
}

int release(const char*, fuse_file_info* file) {
  return answer(::close(static_cast<int>(file->fh)));
}

int read_from(const char*, char* bytes, std::size_t size, off_t offset, fuse_file_info* file) {
  if (const int error = suffer("read", size)) return error;
  return answer(::pread(static_cast<int>(file->fh), bytes, size, offset));
}

int write_to(const char*, const char* bytes, std::size_t size, off_t offset, fuse_file_info* file) {
  if (const int error = suffer("write", size)) return error;
  return answer(::pwrite(static_cast<int>(file->fh), bytes, size, offset));
}

int sync_file(const char*, int, fuse_file_info* file) {
  if (const int error = suffer("fsync")) return error;
  return answer(::fsync(static_cast<int>(file->fh)));
}

int sync_directory(const char*, int, fuse_file_info*) { return suffer("fsync"); }

int truncate_to(const char* path, off_t size, fuse_file_info* file) {
  if (file != nullptr) return answer(::ftruncate(static_cast<int>(file->fh), size));
  const int opened = ::openat(disk().backing, below(path), O_WRONLY | O_NOFOLLOW);
  const int result = answer(opened < 0 ? -1 : ::ftruncate(opened, size));
  if (opened >= 0) ::close(opened);
  return result;
}

int rename_to(const char* from, const char* to, unsigned flags) {
  if (const int error = suffer("rename")) return error;
  return answer(::renameat2(disk().backing, below(from), disk().backing, below(to), flags));
}

int remove_file(const char* path) {
  if (const int error = suffer("unlink")) return error;
  return answer(::unlinkat(disk().backing, below(path), 0));
}

int make_directory(const char* path, mode_t mode) {
  return answer(::mkdirat(disk().backing, below(path), mode));
}

int remove_directory(const char* path) {
  return answer(::unlinkat(disk().backing, below(path), AT_REMOVEDIR));
}

int space(const char*, struct statvfs* status) {
  if (const int error = suffer("statfs")) return error;
  return answer(::fstatvfs(disk().backing, status));
}

fuse_operations operations() {
  fuse_operations all{};
  all.getattr = stat_of;
  all.readdir = list;
  all.create = create;
  all.open = open_existing;
  all.release = release;
  all.read = read_from;
  all.write = write_to;
  all.fsync = sync_file;
  all.fsyncdir = sync_directory;
  all.truncate = truncate_to;
  all.rename = rename_to;
  all.unlink = remove_file;
  all.mkdir = make_directory;
  all.rmdir = remove_directory;
  all.statfs = space;
  all.flock = lock_file;
  return all;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: slowfs BACKING MOUNT FAULTS\n");
    return 64;
  }
  Disk disk{::open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC),
            Faults(std::filesystem::absolute(argv[3]))};
  if (disk.backing < 0) {
    std::perror(argv[1]);
    return 64;
  }
  std::array<char*, 3> arguments{argv[0], argv[2], const_cast<char*>("-f")};
  const fuse_operations all = operations();
  return fuse_main(static_cast<int>(arguments.size()), arguments.data(), &all, &disk);
}
