#pragma once
// Room `allreduce`: sums gradients over the ranks of a job. make_communicator() chooses shared
// memory in a host with our ring between hosts (`hierarchical`), NCCL (`nccl`), or MPI_Allreduce
// for comparison (`mpi`). GradientReducer cuts gradients into buckets and starts a sum for each
// while backward still runs. `mpi` also has the session: start, broadcast, abort, end.
//
// Threads: the main thread calls; sums between hosts run on threads of their own.
//
// Collective: everything, in the same order on all ranks, unless a contract says "not collective".
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "ringtrain/allreduce/communicator/compression.hpp"
#include "ringtrain/base/clock.hpp"
#include "ringtrain/base/error.hpp"
#include "ringtrain/base/memory/memory.hpp"
#include "ringtrain/base/memory/view.hpp"

namespace ringtrain::allreduce {

/// How a ring cuts what it sends. Changes speed, never the result.
struct RingTuning {
  std::size_t largest_segment = 31 * 256;  ///< elements of a message
  std::size_t smallest_segment = 8 * 256;  ///< unless the part is smaller
  std::size_t window = 32;                 ///< messages under way to a rank, at most
  friend bool operator==(const RingTuning&, const RingTuning&) = default;
};

/// How the sums of a step run between hosts. Changes speed, never the result.
struct SumPlan {
  RingTuning ring = {};  ///< the messages of each sum
  int at_once = 1;       ///< sums in flight at a time
  bool late = false;     ///< they start after backward, instead of each when its bucket is final
  friend bool operator==(const SumPlan&, const SumPlan&) = default;
};

class CompressionState;

/// Gets sums on the one rank that completes them, before the other ranks do, and may change them in
/// place: all ranks get what it leaves. So a rank can pass new parameters on instead of gradients.
/// Thread: one that sums; several at once, with other sums, where CommunicatorOptions::at_once
/// allows it. What it throws ends the sum.
using ReduceHook = std::function<void(View complete)>;

/// How one all-reduce is made. The same on all ranks.
struct SumOptions {
  /// What the numbers travel as between hosts, or between GPUs. Rounding happens on the way only:
  /// all ranks get the same fp32. "mpi" sends fp32 whatever this is.
  Element wire = Element::fp32;
  /// Whether numbers travel between hosts as CommunicatorOptions::compressed says, if it says so.
  /// Then the view has gradients `first` and those behind it, of whole matrices.
  bool compressed = false;
  std::size_t first = 0;
  /// Not null on all ranks or on none: gets this rank's own_parts() of the sums, in pieces, and
  /// lives until finish(). Only the ring between CPUs calls it, and only for views from memory();
  /// others throw Error.
  const ReduceHook* hook = nullptr;
};

/// What of a communicator never changes.
struct CommunicatorFacts {
  int rank = 0, size = 1;
  bool overlaps = false;
  /// Empty where no hook is called.
  std::function<std::vector<Range>(std::span<const std::size_t> counts, int rank)> own_parts = {};
  /// Why sums cannot be part of a CUDA graph; empty: they can, or nobody asked (GpuSums::captured).
  std::string why_not_captured = {};
};

/// The ranks of one training job. Thread: main, unless a member says otherwise. Views are of equal
/// size, in the same kind of memory, on all ranks.
class Communicator {
 public:
  explicit Communicator(CommunicatorFacts facts) : facts_(std::move(facts)) {}
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;

  /// Not collective, as are size(), overlaps() and own_parts().
  int rank() const { return facts_.rank; }
  int size() const { return facts_.size; }
  /// Whether sums run while the caller computes, and not only in finish().
  bool overlaps() const { return facts_.overlaps; }
  const std::string& why_not_captured() const { return facts_.why_not_captured; }
  /// Which part of all-reduces of so many numbers `rank` completes and gives to their hook. The
  /// parts of all ranks cover each number once. Throws Error where no hook is called.
  std::vector<Range> own_parts(std::span<const std::size_t> counts, int rank) const {
    if (!facts_.own_parts) throw Error("sum in parts", "only the ring between CPUs does");
    return facts_.own_parts(counts, rank);
  }

  /// Memory in which sums are fastest, such as a window shared by the ranks of a host. The
  /// communicator outlives its buffers. Not collective, but its allocate() is where ranks share
  /// it. Nothing is allocated or released while sums are in flight.
  virtual Memory& memory() = 0;
  /// Collective. Copies root's values to every rank, and waits until they are there.
  virtual void broadcast(View values, int root) = 0;
  /// Collective. Starts summing `values` in place over all ranks, after the compute work queued so
  /// far. Nothing may touch them before finish(). The ring between CPUs adds in a fixed order: the
  /// same bits every run. Views of other memory than memory() cost a copy; a larger one than any
  /// before waits for sums in flight. Throws what went wrong with earlier sums.
  virtual void start_allreduce(View values, const SumOptions& options = {}) = 0;
  /// Collective. As start_allreduce(), but of as many equal parts as there are ranks this one gets
  /// the sums of part rank() alone; its other parts stay as they are. `values` has a multiple of
  /// size() numbers. Only NCCL's does; others throw Error.
  virtual void start_reduce_scatter(View values);
  /// Collective. Starts to bring part rank() of each view, as above, to all ranks, in one call and
  /// after the compute work queued so far. Nothing may touch them before finish(). Only NCCL's
  /// does; others throw Error.
  virtual void start_allgather(std::span<const View> views);
  /// Collective. Orders compute work queued from now on after every sum started so far: CPUs wait
  /// for them, GPUs queue that wait. Throws what went wrong with them.
  virtual void finish() = 0;
  /// Not collective. Thread: any, where sums are NCCL's. Never waits. Throws what went wrong in the
  /// background since the last call.
  virtual void check() {}
  /// Not collective, while no sums are in flight. Null where this rank compresses nothing.
  virtual CompressionState* compression_state() { return nullptr; }
  /// Collective. Ends a job in which all is well, when no sum is in flight and none will be.
  /// Without it, destruction breaks off what other ranks may still be doing.
  virtual void close() {}
  /// Not collective. Thread: any, where sums are NCCL's. Gives up the sums in flight when the job
  /// fails: nothing touches their views afterwards. Only destruction is allowed then.
  virtual void abort() noexcept {}

 protected:
  /// For communicators that call no hook.
  static void refuse_hook(const SumOptions& options) {
    if (options.hook != nullptr) throw Error("sum in parts", "only the ring between CPUs does");
  }

 private:
  const CommunicatorFacts facts_;
};

/// How sums between GPUs are made.
struct GpuSums {
  /// The cudaStream_t that computes: sums follow what is queued there, and it follows them. It
  /// outlives the communicator. Null: CUDA's default stream.
  void* compute_stream = nullptr;
  int device = 0;  ///< of this rank, from choose_gpu(); this thread's
  /// Tells NCCL about memory(), so that GPUs reach each other's without copies.
  bool register_memory = false;
  /// Sums are to be part of CUDA graphs: tries at the start whether they can, see
  /// Communicator::why_not_captured(). Wants a compute stream.
  bool captured = false;
  /// For sums with a `wire` of 16 bits: what rounds, on the compute stream, and how many numbers it
  /// rounds between two finish(), at most. It outlives the communicator. Null: there are none.
  Rounding* rounding = nullptr;
  std::size_t rounded = 0;
  /// Other communicators of this process may sum at the same time, started in the same order on all
  /// ranks. Told of the first one that is made; only where keeps_launch_order().
  bool beside_others = false;
  double deadline_s = 120;  ///< longest time for NCCL to take a call; then the job fails
  /// Not null: NCCL's calls block the thread that makes them, for comparison. One that takes longer
  /// calls this on a thread of its own, and it ends the process.
  std::function<void(const Error&)> on_stuck = {};
};

struct CommunicatorOptions {
  RingTuning ring = {};
  /// Whether sums between hosts run while this thread computes. Changes speed, never the result.
  bool overlap = true;
  /// Sums that may be under way between hosts at a time, where they overlap with this thread: what
  /// one waits for on a slow network the others hide. Changes speed, never the result. One where
  /// sums are compressed, or threads may not share MPI.
  int at_once = 1;
  /// 0: as it is. Else ranks of a host share memory in groups of at most so many, and the groups
  /// take part as if they were hosts: for tests and measurements.
  int ranks_a_host = 0;
  /// The ranks of a host have fewer cores than threads that want to run: ranks that wait for each
  /// other leave theirs at once. Changes speed, never the result.
  bool crowded = false;
  GpuSums gpu = {};
  /// "ring": for SumOptions::compressed. On one host nothing is compressed.
  CompressedGradients compressed = {};
  /// "ring": is told of each sum and its bytes, by the thread that sums: this one in finish() where
  /// there is one host or no overlap, else one of `at_once`, which are numbered from 0. Sums that
  /// lie beside each other in shared memory are one.
  OnSpan on_sum = {};
};

/// A job of this rank alone, whatever others there are: sums cost nothing. Not collective.
std::unique_ptr<Communicator> make_solo_communicator();

}  // namespace ringtrain::allreduce
