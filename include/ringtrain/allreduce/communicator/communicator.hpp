#pragma once
// Room `allreduce`: sums gradients over the ranks of a job. make_communicator() chooses shared
// memory in a host with our ring between hosts (`hierarchical`), NCCL (`nccl`), or MPI_Allreduce
// for comparison (`mpi`). GradientReducer cuts gradients into buckets and starts a sum for each
// while backward still runs. `mpi` also has the session: start, broadcast, abort, end.
//
// Threads: the main thread calls; sums between hosts run on threads of their own.
//
// Collective: everything, in the same order on all ranks, unless a contract says "not collective".
#include <functional>
#include <span>
#include <vector>

#include "ringtrain/allreduce/communicator/sum_plan.hpp"
#include "ringtrain/base/memory/memory.hpp"
#include "ringtrain/base/memory/view.hpp"

namespace ringtrain::allreduce {

/// Replaces sums by what is made of them, in place, on the one rank that completes them, before the
/// other ranks get them: so a rank that updates its part of the parameters passes new parameters on
/// instead of gradients. On the thread that sums,
/// of which there are CommunicatorOptions::at_once, so perhaps on several at once, each with other
/// sums; throws what ends the sum.
using ReduceHook = std::function<void(View complete)>;

/// The ranks of one training job. Every member but rank(), size(), own_parts(), overlaps(),
/// accept(), check() and cancel() is collective: all ranks call it, in the same order, with views
/// of equal size in the same kind of memory.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Memory in which sums are fastest (a window shared by the ranks of a host); the communicator
  /// outlives its buffers. None is allocated or released while sums are in flight. start_sum()
  /// takes views of other memory at the price of a copy, whose room grows, collectively, with the
  /// largest view so far: give it that one while no other sums are in flight.
  virtual Memory& memory() = 0;
  /// Copies root's values to every rank and waits for them.
  virtual void broadcast(View values, int root) = 0;
  /// Starts summing `gradients` in place over all ranks, after the compute work queued so far. The
  /// view must not be touched before finish(). The ring adds in a fixed order: same bits every run.
  virtual void start_sum(View gradients) = 0;
  /// As start_sum(), but between hosts the numbers travel as `element`, where the communicator can:
  /// a ring between CPUs does. Same bits on all ranks.
  virtual void start_rounded_sum(View gradients, Element /*element*/) { start_sum(gradients); }
  /// As start_sum(), but between hosts the numbers travel compressed, where the communicator was
  /// made for that (CommunicatorOptions::compressed). They are gradients `first` and those behind
  /// it, of whole matrices. What is left out is added to the next sum, if accept() comes between.
  virtual void start_compressed_sum(View gradients, std::size_t /*first*/) { start_sum(gradients); }
  /// The finished sums of all gradients were used: compressed ones count. Not collective.
  virtual void accept() {}
  /// What compression keeps on this rank from step to step, as of the last accept(): so many
  /// numbers, which read_kept() copies to `values` and write_kept() takes from there. They are part
  /// of what the next sums depend on. While no sums are in flight; not collective.
  virtual std::size_t kept_count() const { return 0; }
  virtual void read_kept(std::span<float> /*values*/) const {}
  virtual void write_kept(std::span<const float> /*values*/) {}
  /// As start_sum(), but each rank gives `replace`, which lives until finish(), its own part of
  /// the sums, in pieces, and all ranks get what it made of them. The ring between CPUs does;
  /// throws Error elsewhere.
  virtual void start_replaced_sum(View gradients, const ReduceHook& replace);
  /// What `rank` completes with start_replaced_sum() of sums of so many numbers: all ranks' parts
  /// cover each once. Not collective.
  virtual std::vector<Range> own_parts(std::span<const std::size_t> counts, int rank) const;
  /// Starts averaging 16-bit gradients, otherwise as start_sum(): each number is divided by the
  /// ranks before it is added, so that sums of fp16 do not overflow. Between GPUs only; throws
  /// Error elsewhere.
  virtual void start_average(NarrowView gradients);
  /// Orders compute work queued from now on after every sum started so far.
  virtual void finish() = 0;
  /// Whether sums run while the caller computes, and not only in finish(). Not collective.
  virtual bool overlaps() const { return false; }
  /// Throws what went wrong in the background since the last call. Never waits; not collective.
  virtual void check() {}
  /// How sums between hosts travel from now on, where they do so by our ring: in which blocks, and
  /// how many at once, of those that the communicator was made for. While no sums are in flight,
  /// the same on all ranks. `plan.late` is the caller's to keep.
  virtual void plan_sums(const SumPlan& /*plan*/) {}
  /// Ends a job in which all is well, when no sum is in flight and none will be. Without it,
  /// destruction breaks off what other ranks may still be doing.
  virtual void close() {}
  /// Gives up the sums in flight, when the job fails: afterwards nothing touches their views, and
  /// only destruction is allowed. Not collective.
  virtual void cancel() noexcept {}
};

}  // namespace ringtrain::allreduce
