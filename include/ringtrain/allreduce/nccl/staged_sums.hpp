#pragma once
#include <functional>
#include <memory>

#include "ringtrain/allreduce/communicator/communicator.hpp"

namespace ringtrain::allreduce {

/// Sums of numbers in GPUs' memory by way of the hosts' memory, where CPUs sum them: so gradients
/// travel compressed between hosts. start_allreduce() queues a copy to the host, behind the compute
/// work queued so far. finish() waits until the GPU has made the numbers, starts each sum once its
/// numbers are there, waits for the sums, and queues the copies back. No sum can be captured.
class StagedSums : public Communicator {
 public:
  using Communicator::Communicator;
  /// Whether all that the last finish() summed is finite: the same on all ranks. Not collective.
  virtual bool finite() const = 0;
};

struct StagedOptions {
  /// Of the GPU; what it has of `rounding` and capture is not used.
  GpuSums gpu = {};
  /// The factor that this step's gradients have, such as a loss scale: what compression left out
  /// before had another. Asked for by finish(), once the GPU has made the gradients. Null: always
  /// the same.
  std::function<double()> scale = {};
};

/// `gpus`: broadcasts and has the memory in which `all` lies, of which sums are slices. `cpus`
/// sums. All outlive the result. Throws Error(Exit::usage) where the build has no CUDA. Collective.
std::unique_ptr<StagedSums> make_staged_sums(Communicator& gpus, Communicator& cpus, View all,
                                             const StagedOptions& options);

}  // namespace ringtrain::allreduce
