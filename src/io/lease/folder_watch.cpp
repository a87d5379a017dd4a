#include "io/lease/folder_watch.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <string_view>
#include <system_error>
#include <utility>

#include "io/lease/lease.hpp"
#include "io/lease/quiet_thread.hpp"
#include "ringtrain/base/file.hpp"
#include "ringtrain/base/text.hpp"

namespace ringtrain::io {
namespace {

constexpr std::string_view deleted_mark = " (deleted)";

bool is_same(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

std::string lease_in(int directory) {
  std::array<char, longest_lease> bytes{};
  const FileDescriptor file(
      open_beneath(directory, "lock", O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  const ssize_t size = file.get() < 0 ? 0 : ::pread(file.get(), bytes.data(), bytes.size(), 0);
  return {bytes.data(), static_cast<std::size_t>(std::max<ssize_t>(0, size))};
}

// Some file systems give a folder another inode number now and then. A copy of it has another beat
// after a while: its lease stays as it was.
bool has_same_lease(int directory, const std::string& path) {
  const FileDescriptor other(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  bool same = false;
  for (int tries = 0; !same && tries < 2; ++tries) {  // a beat may come between
    const std::string lease = lease_in(directory);
    same = !lease.empty() && other.get() >= 0 && lease_in(other.get()) == lease;
  }
  return same;
}

// Others say nothing of where the path leads: the disk, or its server, is in trouble.
bool leads_nowhere(int error) {
  return error == ENOENT || error == ENOTDIR || error == ELOOP || error == EACCES;
}

// What the kernel calls an open folder is no path of it where its file system was unmounted, or
// another one lies over it.
std::string present_path(int directory, const struct stat& open) {
  std::error_code none;
  const std::string path =
      std::filesystem::read_symlink(fmt::format("/proc/self/fd/{}", directory), none).native();
  struct stat there {};
  if (::stat(path.c_str(), &there) == 0 && is_same(open, there)) return path;
  return path.ends_with(deleted_mark) ? std::string(deleted_mark) : "";
}

std::string why_elsewhere(int error, const struct stat& open, const struct stat& there) {
  if (error != 0) return std::generic_category().message(error);
  return open.st_dev == there.st_dev ? "another folder is there"
                                     : "another file system is mounted there";
}

std::string what_then(const std::string& now) {
  if (now == deleted_mark) return "that was deleted, with all checkpoints in it";
  if (now.empty())
    return "no path leads to that any more. Saves go on in it; mount its file system there again, "
           "or "
           "unmount what lies over it, to find them";
  return fmt::format(
      "that is {} now. Saves go on there; move it back, or name it by --checkpoint-dir in a "
      "restart",
      printable(now));
}

}  // namespace

std::optional<FolderPlace> find_folder(int directory, const std::string& path) {
  struct stat open {
  }, there{};
  if (::fstat(directory, &open) != 0) return std::nullopt;
  const int error = ::stat(path.c_str(), &there) == 0 ? 0 : errno;
  if (error == 0 && (is_same(open, there) || has_same_lease(directory, path)))
    return FolderPlace{
        true, path,
        fmt::format("checkpoint directory {} leads to the folder that is saved in again",
                    printable(path))};
  if (error != 0 && !leads_nowhere(error)) return std::nullopt;
  std::string now = present_path(directory, open);
  const std::string text =
      fmt::format("checkpoint directory {} no longer leads to the folder that is saved in ({}): {}",
                  printable(path), why_elsewhere(error, open, there), what_then(now));
  if (now == deleted_mark) now.clear();
  return FolderPlace{false, std::move(now), text};
}

struct FolderWatch::Shared {
  FileDescriptor directory;  // its own
  std::string path;
  std::chrono::milliseconds interval;
  Report report;
  FolderPlace last;  // reported
  std::mutex mutex;  // of what follows
  std::condition_variable stopping;
  bool stops = false, looks = false;
};

FolderWatch::FolderWatch(int directory, std::string path, bool at_path,
                         std::chrono::milliseconds interval, Report report)
    : shared_(std::make_shared<Shared>()) {
  shared_->directory = FileDescriptor(::fcntl(directory, F_DUPFD_CLOEXEC, 0));
  shared_->path = std::move(path);
  shared_->interval = interval;
  shared_->report = std::move(report);
  shared_->last = {at_path, at_path ? shared_->path : "", ""};
  thread_ = quiet_thread([shared = shared_] { watch(shared); });
}

FolderWatch::~FolderWatch() {
  std::unique_lock lock(shared_->mutex);
  shared_->stops = true;
  const bool may_hang = shared_->looks;
  lock.unlock();
  shared_->stopping.notify_all();
  may_hang ? thread_.detach() : thread_.join();
}

void FolderWatch::watch(const std::shared_ptr<Shared>& shared) {
  ::prctl(PR_SET_NAME, "ringtrain-path");
  Shared& own = *shared;
  std::unique_lock lock(own.mutex);
  while (!own.stopping.wait_for(lock, own.interval, [&] { return own.stops; })) {
    own.looks = true;
    lock.unlock();
    const auto place = find_folder(own.directory.get(), own.path);
    lock.lock();
    own.looks = false;
    if (own.stops) return;
    const bool changed = place && (place->at_path != own.last.at_path ||
                                   (!place->at_path && place->now != own.last.now));
    if (changed && own.report(*place)) own.last = *place;
  }
}

}  // namespace ringtrain::io
