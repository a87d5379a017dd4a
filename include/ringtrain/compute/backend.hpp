#pragma once
// Room `compute`: executes a Schedule of steps on one device of this process. A Backend compiles it
// into a Program for CPUs (`onednn`), for GPUs (`cuda`), or as the oracle of tests (`reference`).
// Vendor libraries are private to those folders.
//
// Threads: a program belongs to the thread that runs it; backends start threads of their own.
//
// Collective: only Program::SumOverRanks, which the caller gives. Images are NHWC.
//
// Memory: the backend's; all of a program's is taken before its first run.
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ringtrain/base/batch.hpp"
#include "ringtrain/base/late_library.hpp"
#include "ringtrain/base/memory/memory.hpp"
#include "ringtrain/base/memory/view.hpp"
#include "ringtrain/base/work_progress.hpp"
#include "ringtrain/compute/step.hpp"

namespace ringtrain::compute {

/// The flat buffers a program works on. They outlive it and never move. Gradients and
/// batch_statistics are written by training programs only; the others are read.
struct Buffers {
  View parameters, gradients;
  View statistics;        ///< running means and variances, read in evaluation
  View batch_statistics;  ///< this batch's, written in training
};

/// What one rank's batch came to. Sums, not means: ranks add them up.
struct StepResult {
  double loss = 0;  ///< sum over samples of the weighted cross-entropies, without L2
  int samples = 0;  ///< those with a Target::label >= 0
  int top1 = 0, top5 = 0;
  double forward_seconds = 0, backward_seconds = 0;
  double ranks_seconds = 0;  ///< in SumOverRanks; not in the others
  double backward_at_s = 0;  ///< where backward begins, from the beginning of run() on
};

/// A compiled Schedule.
class Program {
 public:
  virtual ~Program() = default;
  /// Called while backward runs, on the calling thread: every gradient from `first` on is final.
  using Final = std::function<void(std::size_t first)>;
  /// Sums `values`, in the backend's memory, in place over all ranks: behind the steps before, and
  /// before those after. Collective: the steps with `all_ranks` call it in their order, on the
  /// thread that calls run(), also while sums of gradients are under way. Empty: there is one rank.
  using SumOverRanks = std::function<void(View values)>;
  /// Executes all steps on `batch`, whose size and image extents are the schedule's. Gradients are
  /// of sample_weight * (sum of the samples' losses). Waits until the results are there. Allocates
  /// nothing after the first call. Without a loss among the steps no label is read.
  virtual StepResult run(const Batch& batch, double sample_weight, const Final& final,
                         const SumOverRanks& sum) = 0;
  /// Of one rank.
  StepResult run(const Batch& batch, double sample_weight, const Final& final) {
    return run(batch, sample_weight, final, nullptr);
  }
  /// Of a schedule that has logits: those of the batch of the last run(), samples x classes.
  virtual std::vector<float> logits() const = 0;
  /// Bytes of activations and workspace held.
  virtual std::size_t bytes() const = 0;
};

/// One way to execute steps: reference loops, oneDNN on CPUs, cuDNN on GPUs.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string name() const = 0;
  /// Whether this backend has an implementation of `step` as it stands, fusions included, on the
  /// tensors of `schedule`, which need not hold the step yet. A piece of a BatchNorm may be refused
  /// where no step there takes it in, as slower than the whole. Needs no device.
  virtual bool supports(const Schedule& schedule, const Step& step) const = 0;
  /// Plans every step of `schedule` (memory formats, engines, workspaces). The slow part; nothing
  /// is planned later. `seed` keys dropout. Throws Error naming the step that cannot be planned.
  virtual std::unique_ptr<Program> compile(const Schedule& schedule, const Buffers& buffers,
                                           std::uint64_t seed) = 0;
  virtual Memory& memory() = 0;
};

/// Plain loops in double precision: the oracle.
std::unique_ptr<Backend> make_reference_backend();
/// Whether this host's CPU has instructions for activations of `element`: for fp32 always, for bf16
/// where it has AVX512_BF16 or AMX.
bool cpu_trains_in(Element element);
/// oneDNN on this host's CPUs, with as many threads as OpenMP has; activations are of `element`.
/// compile() tells `progress` of each step planned; null: nobody. Throws Error unless
/// cpu_trains_in(element).
std::unique_ptr<Backend> make_onednn_backend(WorkProgress* progress = nullptr,
                                             Element element = Element::fp32);

/// Bytes that a program of oneDNN's takes besides the flat buffers.
struct HostNeeds {
  std::size_t activations = 0;
  std::size_t workspace = 0;  ///< scratch memory, weights in oneDNN's formats, what backward needs
  std::vector<std::string> kernels = {};  ///< oneDNN's names of those that it chose, and ours
};
/// Plans `schedule` for this host's CPUs as make_onednn_backend()->compile() does, without taking
/// the memory.
HostNeeds host_needs(const Schedule& schedule, WorkProgress* progress = nullptr,
                     Element element = Element::fp32);

/// The backends that can run here, by name: "reference", "onednn".
std::vector<std::string> available_backends();
std::unique_ptr<Backend> make_backend(const std::string& name);

LibraryVersion onednn_version();

}  // namespace ringtrain::compute
