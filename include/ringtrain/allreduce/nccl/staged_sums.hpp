#pragma once
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
  /// `scale`, one number in the GPU's memory, is the factor that gradients have, such as a loss
  /// scale. What compression left out follows it, as it is when the GPU has made the first numbers
  /// of a finish(). Before the first sum. Not collective.
  virtual void follow_scale(View scale) = 0;
  /// Whether the host's memory is locked in place. Else copies are slow, and start_allreduce()
  /// waits for the GPU.
  virtual bool pinned() const = 0;
};

/// `gpus`: broadcasts and has the memory in which `all` lies, of which sums are slices. `cpus`
/// sums. Both outlive the result, as does `compute_stream`, see GpuSums. Throws Error(Exit::usage)
/// where the build has no CUDA. Collective.
std::unique_ptr<StagedSums> make_staged_sums(Communicator& gpus, Communicator& cpus, View all,
                                             void* compute_stream);

}  // namespace ringtrain::allreduce
