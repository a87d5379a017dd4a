// slowfs BACKING MOUNT FAULTS: shows the directory BACKING at MOUNT as a disk with the faults that
// the file FAULTS names (see faults.hpp), which may change at any time. Stays in the foreground;
// SIGTERM unmounts it and ends what hangs.
#define FUSE_USE_VERSION 312
#include <dirent.h>
#include <fcntl.h>
#include <fuse.h>
#include <fuse_lowlevel.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "faults.hpp"
#include "ringtrain/base/unique_handle.hpp"

namespace {

using ringtrain::Faults;

struct Disk {
  int backing;
  Faults faults;
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

int stat_of(const char* path, struct stat* status, fuse_file_info*) {
  if (const int error = suffer("stat")) return error;
  return answer(::fstatat(disk().backing, below(path), status, AT_SYMLINK_NOFOLLOW));
}

int list(const char* path, void* buffer, fuse_fill_dir_t fill, off_t, fuse_file_info*,
         fuse_readdir_flags) {
  if (const int error = suffer("list")) return error;
  const int file = ::openat(disk().backing, below(path), O_RDONLY | O_DIRECTORY);
  const ringtrain::UniqueHandle<DIR*, ::closedir> directory(::fdopendir(file));
  if (directory.get() == nullptr) return -errno;
  while (const dirent* entry = ::readdir(directory.get()))
    fill(buffer, entry->d_name, nullptr, 0, fuse_fill_dir_flags{});
  return 0;
}

int create(const char* path, mode_t mode, fuse_file_info* file) {
  if (const int error = suffer("open")) return error;
  // libfuse's memory is not aligned for direct I/O
  const int opened = ::openat(disk().backing, below(path), file->flags & ~O_DIRECT, mode);
  if (opened < 0) return -errno;
  file->fh = static_cast<std::uint64_t>(opened);
  return 0;
}

int open_existing(const char* path, fuse_file_info* file) { return create(path, 0, file); }

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
