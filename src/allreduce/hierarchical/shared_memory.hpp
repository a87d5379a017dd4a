#pragma once
#include <cstddef>
#include <map>
#include <optional>

#include "allreduce/mpi/mpi_check.hpp"
#include "allreduce/ring/sum_kernels.hpp"
#include "ringtrain/base/memory/memory.hpp"

namespace ringtrain::allreduce {

/// Memory of which every rank of a host has one piece and sees all: anonymous (memfd), so that no
/// size limit of /dev/shm applies and nothing is left behind, and unmapped without the other ranks.
class SharedMemory final : public Memory {
 public:
  /// `local` has the ranks of one host.
  explicit SharedMemory(MPI_Comm local);
  Buffer allocate(std::size_t count) override;
  /// The pieces of all ranks at the place where `mine` lies in this rank's, if it lies in one.
  std::optional<Replicas> replicas(View mine) const;
  /// From now on, the memory of released buffers stays where it is.
  void keep_all() noexcept { keep_all_ = true; }

 private:
  MPI_Comm local_;
  int rank_ = 0, size_ = 1;
  bool keep_all_ = false;
  std::map<float*, Replicas> blocks_;  // by the end of this rank's piece
};

}  // namespace ringtrain::allreduce
