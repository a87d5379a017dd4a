#pragma once
// Room `train/engine`: what one rank trains on. An engine owns the buffers, the compiled network
// and the communicators of CPUs or a GPU, and makes the steppers that change them. All that differs
// between the two is here; `loop` and `hooks` know only the interfaces.
//
// Thread: main. Engines and steppers are collective where a contract says nothing else.
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ringtrain/allreduce/communicator/communicator.hpp"
#include "ringtrain/allreduce/mpi/session.hpp"
#include "ringtrain/allreduce/ring/tuning.hpp"
#include "ringtrain/compute/backend.hpp"
#include "ringtrain/host/threads.hpp"
#include "ringtrain/monitor/progress.hpp"
#include "train/engine/stepper.hpp"
#include "train/plan/run_plan.hpp"
#include "train/state/snapshot.hpp"
#include "train/state/training_state.hpp"

namespace ringtrain::train {

/// What performance/ measures of an engine, and how its sums travel.
class EngineProbe {
 public:
  /// Bounds of the buckets in which the ranks sum, in elements.
  virtual std::vector<std::uint64_t> bucket_bounds() = 0;
  /// Sums such a bucket over the ranks as a step does, and waits until it is there. Gradients are
  /// overwritten: between steps only. Collective.
  virtual void sum(const Range& bucket) = 0;
  /// How sums travel between hosts, where our ring joins them; else null.
  virtual const allreduce::RingChoice* ring() const { return nullptr; }
  /// Bytes a second from each host to the next, the last to the first, where our ring joins them;
  /// else none. Takes some 0.5 s, at 10 Mbit/s 3 s. Between steps. Collective.
  virtual std::vector<double> measure_host_links() { return {}; }
  /// Whether sums run while backward does.
  virtual bool sums_overlap() = 0;
  /// What a batch takes, forward and backward without sums: the median of some runs.
  struct BatchSeconds {
    static constexpr int least_runs = 4;  ///< of each; the first does not count
    double usual_s = 0;                   ///< of this rank's share
    double other_s = 0;
  };
  /// Times batches of `other` images and of this rank's share, on the calling thread, for 0.3 s or
  /// least_runs each. Returns none on GPUs and for want of memory. Overwrites gradients: between
  /// steps only. Not collective.
  virtual std::optional<BatchSeconds> time_batches(int /*other*/) { return std::nullopt; }
  /// How long before the end of the backward pass each bucket was final, in the order of the sums.
  /// Of the last step, whose backward pass took `backward_s`.
  virtual std::vector<double> bucket_leads(double backward_s) = 0;

 protected:
  ~EngineProbe() = default;
};

/// What one rank trains on, CPUs or a GPU: the training state in its memory, and what changes it.
class TrainingEngine {
 public:
  virtual ~TrainingEngine() = default;

  /// What the user should know of it before training, line by line.
  virtual std::vector<std::string> notes() const = 0;
  /// The PCI address of this rank's GPU; empty: there is none.
  virtual std::string gpu_bus_id() const { return {}; }
  virtual allreduce::Communicator& communicator() = 0;
  virtual const TrainingState& state() = 0;
  virtual Snapshotter& state_copy() = 0;

  /// From `start`, with all ranks. What the stepper before had under way is over.
  virtual std::unique_ptr<Stepper> make_stepper(Position start) = 0;
  /// Without the others, whatever they do. Not collective.
  virtual std::unique_ptr<Stepper> make_solo_stepper() = 0;
  /// The network in evaluation mode: with the moving average of the parameters where there is one.
  virtual compute::Program& evaluation() = 0;

  /// What is measured of its sums and steps.
  virtual EngineProbe& probe() = 0;
  /// What a rank computes on, for the user and as part of what its speed depends on.
  virtual std::string device() const = 0;
  /// What changes rounding here, as a JSON object: kept in checkpoints.
  virtual std::string plans() const = 0;
  /// What is first not finite of the gradients and statistics of the step reported last, in words;
  /// empty: nothing is, or that is not known any more.
  virtual std::string first_non_finite() = 0;
  /// Ends a job in which all is well. Collective.
  virtual void close() = 0;
};

/// `plan`, `session` and `progress`, which its steppers report to, outlive it.
/// Collective.
std::unique_ptr<TrainingEngine> make_cpu_engine(const RunPlan& plan,
                                                const host::ThreadPlan& threads,
                                                const allreduce::MpiSession& session,
                                                monitor::Progress& progress);
/// Throws Error where this rank has no GPU that can be used. Collective.
std::unique_ptr<TrainingEngine> make_gpu_engine(const RunPlan& plan,
                                                const allreduce::MpiSession& session,
                                                monitor::Progress& progress);

}  // namespace ringtrain::train
