#include "allreduce/hierarchical/shared_memory.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>

#include "allreduce/mpi/shared_file.hpp"

namespace ringtrain::allreduce {
namespace {

int reserve(int file, off_t begin, off_t size) {
  int error = 0;
  do error = ::posix_fallocate(file, begin, size);
  while (error == EINTR);
  return error;
}

}  // namespace

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
    throw Error(error == EFBIG ? Exit::limit : Exit::usage,
                fmt::format("allocate {} MiB of shared memory", stride >> 20),
                reason_of(error) + (error == ENOSPC ? "; use fewer ranks a host" : ""));
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

}  // namespace ringtrain::allreduce
