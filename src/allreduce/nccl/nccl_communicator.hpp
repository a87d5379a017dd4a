#pragma once
// Room `allreduce/nccl`: sums between GPUs by NCCL, which is loaded when it is needed. NcclGroup
// bounds each call by a time limit; NcclCommunicator queues sums behind the compute stream;
// `host_staging` hands gradients to the CPUs' ring where they travel compressed between hosts.
//
// Threads: main; abort() and check() from any.
// Collective: everything that sums or allocates registered memory.
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "allreduce/nccl/nccl_group.hpp"
#include "ringtrain/allreduce/communicator/communicator.hpp"
#include "ringtrain/allreduce/mpi/session.hpp"
#include "ringtrain/base/memory/memory.hpp"

namespace ringtrain::allreduce {

/// Memory of this rank's GPU. Buffers die before it. Those released after the group was cancelled
/// stay until the process ends, because the GPU may still be writing to them.
class NcclMemory final : public Memory {
 public:
  /// `group`: the other ranks, if there are any. `registered`: NCCL is told of buffers, and reaches
  /// them without copies where the links allow it. All outlive this object.
  NcclMemory(NcclApi& calls, GpuStream stream, NcclGroup* group, bool registered)
      : calls_(calls), stream_(stream), group_(group), registered_(registered) {}
  Buffer allocate(std::size_t count) override;
  /// Before the group is closed. Nothing is allocated afterwards.
  void deregister_all();

 private:
  bool is_shared() const { return group_ != nullptr && registered_; }
  void release(void* data) noexcept;
  void deregister(void* handle);

  NcclApi& calls_;
  const GpuStream stream_;
  NcclGroup* const group_;
  const bool registered_;
  std::map<void*, void*> handles_;  // of what is registered, by memory
};

/// Room in which gradients are summed in 16 bits: half the bytes between the ranks. Thread: main.
class HalfBuffer {
 public:
  /// For `count` numbers between two calls of widen(). Both references outlive this object.
  /// Collective where `memory` is.
  HalfBuffer(Rounding& rounding, Memory& memory, std::size_t count);
  /// factor * values as `element`, which stays until widen(). Never waits.
  NarrowView round(float factor, View values, Element element);
  /// What round() gave since the last call goes back, as it is now, to where it came from. Never
  /// waits.
  void widen();

 private:
  struct Rounded {
    View values;
    NarrowView halves;
  };

  Rounding& rounding_;
  const std::size_t count_;
  const Buffer memory_;
  std::size_t free_;  // numbers in front of those in use
  std::vector<Rounded> rounded_;
};

/// Sums between GPUs, one rank each, on a stream of their own beside the compute stream.
/// start_allreduce() and finish() queue work and never wait for the GPU; they may be captured in a
/// CUDA graph, of capture mode "thread local", because a thread of NCCL's queues the kernels. Make
/// one sum before the first capture: it connects the ranks. Destroy the graphs before close(). One
/// rank alone makes no call of NCCL.
class NcclCommunicator final : public Communicator {
 public:
  /// Collective. `id` is rank 0's, from get_unique_id(). The calling thread's device is
  /// `me.device`. `why_not_captured`: as in CommunicatorFacts.
  NcclCommunicator(std::shared_ptr<NcclApi> calls, const NcclRank& me, const NcclId& id,
                   const GpuSums& sums, std::string why_not_captured = {});
  ~NcclCommunicator() override { abort(); }

  Memory& memory() override { return memory_; }
  void broadcast(View values, int root) override;
  void start_allreduce(View values, const SumOptions& options) override;
  void start_reduce_scatter(View values) override;
  void start_allgather(std::span<const View> views) override;
  void finish() override;
  void check() override;
  void close() override;
  /// Whether a sum can be captured: why not, or nothing. Makes one that is captured and, to connect
  /// the ranks, one that is not. Collective, and before any other. After a refusal on some rank
  /// this communicator may be unusable.
  std::string try_capture();
  /// Sets GpuSums::rounding and GpuSums::rounded. Before the first sum that wants them.
  void round_by(Rounding& rounding, std::size_t count);
  /// Thread: any. Memory released from now on stays until the process ends.
  void abort() noexcept override;

 private:
  GpuStream compute() const { return static_cast<GpuStream>(sums_.compute_stream); }
  void follow_compute();
  void start(void* numbers, std::size_t count, Element element, Reduction reduction);
  View own_part(View values) const;

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

/// Chooses as the public one does, with these calls.
int choose_gpu(const MpiSession& session, bool same_bits,
               const std::vector<std::string>& interfaces, NcclApi& calls);
/// Sums between GPUs by NCCL. Collective. `session` outlives it.
std::unique_ptr<Communicator> make_nccl_communicator(const MpiSession& session, const GpuSums& sums,
                                                     std::shared_ptr<NcclApi> calls);

}  // namespace ringtrain::allreduce
