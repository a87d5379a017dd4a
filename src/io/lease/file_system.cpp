#include "io/lease/file_system.hpp"

#include <fmt/core.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>

#include <algorithm>
#include <array>
#include <limits>

namespace ringtrain::io {
namespace {

struct Known {
  std::uint32_t magic;
  const char* name;
  bool is_local;
};

// Of statfs(2) and the kernel's headers; Lustre, ZFS and Spectrum Scale are not part of it.
constexpr std::array known_file_systems = {
    Known{0xEF53, "ext4", true},         Known{0x58465342, "xfs", true},
    Known{0x9123683E, "btrfs", true},    Known{0x01021994, "tmpfs", true},
    Known{0x858458F6, "ramfs", true},    Known{0x794C7630, "overlay", true},
    Known{0xF2F52010, "f2fs", true},     Known{0x2FC12FC1, "zfs", true},
    Known{0xCA451A4E, "bcachefs", true}, Known{0x3153464A, "jfs", true},
    Known{0x4D44, "vfat", true},         Known{0x2011BAB0, "exfat", true},
    Known{0x7366746E, "ntfs3", true},    Known{0x6969, "nfs", false},
    Known{0x0BD00BD0, "lustre", false},  Known{0x65735546, "fuse", false},
    Known{0xFF534D42, "cifs", false},    Known{0xFE534D42, "smb3", false},
    Known{0x00C36400, "ceph", false},    Known{0x47504653, "gpfs", false},
    Known{0x19830326, "beegfs", false},  Known{0x01161970, "gfs2", false},
    Known{0x7461636F, "ocfs2", false},   Known{0x01021997, "9p", false},
    Known{0x5346414F, "afs", false},
};

std::optional<struct statvfs> statistics_of(int directory) {
  struct statvfs disk {};
  const bool told = ::fstatvfs(directory, &disk) == 0 && disk.f_blocks != 0 && disk.f_frsize != 0;
  return told ? std::optional(disk) : std::nullopt;
}

}  // namespace

FileSystem file_system_of(int fd) {
  struct statfs status {};
  if (::fstatfs(fd, &status) != 0) return {"a file system that does not say its type", false};
  const auto magic = static_cast<std::uint32_t>(status.f_type);
  const auto* const found = std::ranges::find(known_file_systems, magic, &Known::magic);
  if (found == known_file_systems.end()) return {fmt::format("type {:#x}", magic), false};
  return {found->name, found->is_local};
}

std::optional<std::uint64_t> free_bytes(int directory) {
  const auto disk = statistics_of(directory);
  if (!disk) return std::nullopt;
  constexpr auto most = std::numeric_limits<std::uint64_t>::max();
  if (disk->f_bavail > most / disk->f_frsize) return most;
  return std::uint64_t(disk->f_bavail) * disk->f_frsize;
}

std::string free_space(int directory) {
  const auto bytes = free_bytes(directory);
  if (!bytes) return "free space unknown";
  const auto disk = statistics_of(directory);
  const bool has_inodes =
      !disk || disk->f_files == 0 || disk->f_favail > 0;  // some have no such limit
  if (has_inodes) return fmt::format("{} bytes are free", *bytes);
  return fmt::format("0 of {} inodes are free, and each file takes one; {} bytes are free",
                     disk->f_files, *bytes);
}

}  // namespace ringtrain::io
