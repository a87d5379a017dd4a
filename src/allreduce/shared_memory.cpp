#include "allreduce/shared_memory.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>

#include "ringtrain/base/file_descriptor.hpp"

namespace ringtrain {
namespace {

// Where the first rank's memfd is to be found, and which file it is: in another container the same
// path may lead to another process's file.
struct Owner {
  pid_t process;
  int file;
  dev_t device;
  ino_t inode;
};

struct stat status_of(int file) {
  struct stat status {};
  check_errno(::fstat(file, &status), "fstat");
  return status;
}

FileDescriptor open_of(const Owner& owner) {
  const std::string path = fmt::format("/proc/{}/fd/{}", owner.process, owner.file);
  const auto refuse = [&](const std::string& why) {
    throw Error(Exit::usage, "share memory between the ranks of this host",
                fmt::format("{}: {}; start all ranks of a host as one user and in one container, "
                            "or choose --allreduce mpi",
                            path, why));
  };
  FileDescriptor shared(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
  if (shared.get() < 0) refuse(std::generic_category().message(errno));
  const struct stat status = status_of(shared.get());
  if (status.st_dev != owner.device || status.st_ino != owner.inode) refuse("is another file");
  return shared;
}

int reserve(int file, off_t begin, off_t size) {
  int error = 0;
  do error = ::posix_fallocate(file, begin, size);
  while (error == EINTR);
  return error;
}

}  // namespace

// The first rank's memfd, open in every rank: by its name under /proc, no sockets needed.
FileDescriptor open_together(MPI_Comm local) {
  int rank = 0;
  mpi::check(MPI_Comm_rank(local, &rank), "MPI_Comm_rank");
  FileDescriptor shared;
  Owner owner{};
  std::optional<Error> refusal;  // thrown once no other rank waits for this one
  const auto attempt = [&](const auto& open) {
    try {
      shared = open();
    } catch (const Error& failure) {
      refusal = failure;
    }
  };
  if (rank == 0)
    attempt([&] {
      FileDescriptor made(check_errno(::memfd_create("ringtrain", MFD_CLOEXEC), "memfd_create"));
      const struct stat status = status_of(made.get());
      owner = {::getpid(), made.get(), status.st_dev, status.st_ino};
      return made;
    });
  mpi::check(MPI_Bcast(&owner, sizeof(owner), MPI_BYTE, 0, local), "MPI_Bcast");
  if (rank != 0) attempt([&] { return open_of(owner); });
  mpi::check(MPI_Barrier(local), "MPI_Barrier");  // the first rank may close it now
  if (refusal) throw *refusal;
  return shared;
}

SharedMemory::SharedMemory(MPI_Comm local) : local_(local) {
  mpi::check(MPI_Comm_rank(local, &rank_), "MPI_Comm_rank");
  mpi::check(MPI_Comm_size(local, &size_), "MPI_Comm_size");
}

Buffer SharedMemory::allocate(std::size_t count) {
  if (count == 0) return Buffer(View(), [](float*) {});
  // Equal places in equal cache sets would evict each other: pieces are not a power of two apart.
  constexpr std::size_t page = 4096, skew = 17 * 64;
  const std::size_t stride = (count * sizeof(float) + page - 1) / page * page + skew;
  const std::size_t bytes = stride * static_cast<std::size_t>(size_);
  const FileDescriptor shared = open_together(local_);
  // Every rank reserves its own piece, on its own NUMA node, and learns here, not by SIGBUS, that
  // there is too little.
  const off_t mine = static_cast<off_t>(stride * static_cast<std::size_t>(rank_));
  if (const int error = reserve(shared.get(), mine, static_cast<off_t>(stride)); error)
    throw Error(Exit::usage, fmt::format("allocate {} MiB of shared memory", stride >> 20),
                std::generic_category().message(error) + "; use fewer ranks a host");
  mpi::check(MPI_Barrier(local_), "MPI_Barrier");
  void* base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, shared.get(), 0);
  if (base == MAP_FAILED) check_errno(-1, "mmap");
  ::madvise(base, bytes, MADV_HUGEPAGE);  // a hint: failure costs speed only

  const Replicas all{static_cast<float*>(base), static_cast<std::ptrdiff_t>(stride / sizeof(float)),
                     size_};
  float* const end = all.of(rank_) + count;
  blocks_.emplace(end, all);
  return Buffer(View(all.of(rank_), count), [this, base, bytes, end](float*) {
    blocks_.erase(end);
    if (!keep_all_) ::munmap(base, bytes);
  });
}

std::optional<Replicas> SharedMemory::replicas(View mine) const {
  const auto block = blocks_.lower_bound(mine.data() + mine.size());
  if (block == blocks_.end()) return std::nullopt;
  const Replicas all = block->second;
  const std::ptrdiff_t place = mine.data() - all.of(rank_);
  if (place < 0) return std::nullopt;
  return Replicas{all.first + place, all.stride, all.count};
}

}  // namespace ringtrain
