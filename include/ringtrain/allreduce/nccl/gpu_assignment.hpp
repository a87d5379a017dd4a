#pragma once
#include <string>
#include <utility>
#include <vector>

#include "ringtrain/allreduce/mpi/session.hpp"

namespace ringtrain::allreduce {

/// The GPU of one rank, and what NCCL must be told so that it works there.
struct GpuAssignment {
  int device = 0;       ///< by this process's numbers
  bool shared = false;  ///< some ranks of the job, not only this one, share a GPU
  /// Environment variables to set before NCCL's first call, unless the user has set them.
  std::vector<std::pair<std::string, std::string>> environment;
  std::string warning;  ///< for the user, once a job; empty where nothing is shared
};

/// Spreads the ranks of each host over the GPUs there, in order of rank: each takes the one with
/// the fewest ranks among those it sees, so that it does not matter whether all ranks see all GPUs
/// or a scheduler shows each its own. `host_of`: each rank's host; `visible`: the PCI bus ids of
/// the GPUs each rank sees, by device number. `same_bits`: sums must repeat to the bit. Pure: all
/// ranks come to the same answer. Throws Error(Exit::usage) where a rank sees none.
GpuAssignment assign_gpus(int rank, const std::vector<int>& host_of,
                          const std::vector<std::vector<std::string>>& visible, bool same_bits);

/// PCI bus ids of the GPUs that this process may use, by device number; none without a driver, or
/// without CUDA in the build.
std::vector<std::string> visible_gpus();

/// PCI bus ids of the GPUs that choose_gpu() gives to the ranks of this host, in order of rank.
/// Throws Error(Exit::usage) where one sees none. Collective.
std::vector<std::string> gpus_of_host(const MpiSession& session);

/// In the loader's words; empty where NCCL is there.
std::string why_nccl_is_missing();

/// Whether NCCL starts the sums of several communicators on one GPU in the order in which the host
/// starts them (2.26). Else two may wait for each other for ever. Needs NCCL.
bool keeps_launch_order();

/// Takes this rank's place among the GPUs: sets the environment that NCCL needs there, and that it
/// uses `interfaces` of this host's, by name, where there are some. What is set already stays.
/// Returns CUDA's number of the GPU, which is now this thread's. Throws Error(Exit::usage) where
/// there is none, or no CUDA in the build. Collective.
int choose_gpu(const MpiSession& session, bool same_bits,
               const std::vector<std::string>& interfaces);

}  // namespace ringtrain::allreduce
