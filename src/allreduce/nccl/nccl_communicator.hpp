#pragma once
#include <memory>
#include <optional>

#include "allreduce/nccl/half_buffer.hpp"
#include "allreduce/nccl/nccl_memory.hpp"
#include "ringtrain/allreduce/communicator/communicator.hpp"
#include "ringtrain/allreduce/communicator/communicator_options.hpp"

namespace ringtrain::allreduce {

/// Sums between GPUs, one rank each, on a stream of their own beside the compute stream.
/// start_allreduce() and finish() queue work and never wait for the GPU; they may be captured in a
/// CUDA graph, of capture mode "thread local", because a thread of NCCL's queues the kernels. Make
/// one sum before the first capture: it connects the ranks. Destroy the graphs before close(). One
/// rank alone makes no call of NCCL.
class NcclCommunicator final : public Communicator {
 public:
  /// Collective. `id` is rank 0's, from get_unique_id(). The calling thread's device is
  /// `me.device`.
  NcclCommunicator(std::shared_ptr<NcclApi> calls, const NcclRank& me, const NcclId& id,
                   const GpuSums& sums);
  ~NcclCommunicator() override { abort(); }

  Memory& memory() override { return memory_; }
  void broadcast(View values, int root) override;
  void start_allreduce(View values, const SumOptions& options) override;
  void finish() override;
  void check() override;
  void close() override;
  /// Thread: any. Memory released from now on stays until the process ends.
  void abort() noexcept override;

 private:
  GpuStream compute() const { return static_cast<GpuStream>(sums_.compute_stream); }
  void follow_compute();
  void start(void* numbers, std::size_t count, Element element, Reduction reduction);

  const std::shared_ptr<NcclApi> calls_;
  const NcclRank me_;
  const GpuSums sums_;
  const OwnedStream stream_;
  const OwnedEvent produced_, summed_;
  const std::unique_ptr<NcclGroup> group_;  // where there is more than one rank
  NcclMemory memory_;
  std::optional<HalfBuffer> halves_;  // where numbers may travel in 16 bits
  bool in_flight_ = false;            // started, not finished
};

}  // namespace ringtrain::allreduce
