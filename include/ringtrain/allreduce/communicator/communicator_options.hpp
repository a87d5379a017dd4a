#pragma once
#include "ringtrain/allreduce/communicator/compression.hpp"
#include "ringtrain/allreduce/communicator/sum_plan.hpp"
#include "ringtrain/base/clock.hpp"

namespace ringtrain::allreduce {

/// How sums between GPUs are made.
struct GpuSums {
  /// The cudaStream_t that computes: sums follow what is queued there, and it follows them. It
  /// outlives the communicator. Null: CUDA's default stream.
  void* compute_stream = nullptr;
  int device = 0;  ///< of this rank, from choose_gpu(); this thread's
  /// Tells NCCL about memory(), so that GPUs reach each other's without copies.
  bool register_memory = false;
  /// For sums with a `wire` of 16 bits: what rounds, on the compute stream, and how many numbers it
  /// rounds between two finish(), at most. It outlives the communicator. Null: there are none.
  Rounding* rounding = nullptr;
  std::size_t rounded = 0;
  double deadline_s = 120;  ///< longest time for NCCL to take a call; then the job fails
};

struct CommunicatorOptions {
  RingTuning ring = {};
  /// Whether sums between hosts run while this thread computes. Changes speed, never the result.
  bool overlap = true;
  /// Sums that may be under way between hosts at a time, where they overlap with this thread: what
  /// one waits for on a slow network the others hide. Changes speed, never the result. One where
  /// sums are compressed, or threads may not share MPI. tune() makes it less, never more.
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

}  // namespace ringtrain::allreduce
