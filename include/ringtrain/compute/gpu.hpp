#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ringtrain/base/late_library.hpp"
#include "ringtrain/base/memory/view.hpp"
#include "ringtrain/compute/backend.hpp"
#include "ringtrain/compute/update.hpp"

namespace ringtrain::compute {

/// The oldest compute capability that can train, as 75 is 7.5 (Turing): CUDA 13 and cuDNN 9 have
/// dropped those before it.
inline constexpr int oldest_gpu_capability = 75;

/// The oldest that computes in bf16 (Ampere). All that can train compute in fp16.
inline constexpr int oldest_bf16_capability = 80;

/// The oldest with tf32 (Ampere), in which cuDNN multiplies fp32.
inline constexpr int oldest_tf32_capability = 80;

/// "9.0" of 90.
inline std::string capability_text(int capability) {
  return std::to_string(capability / 10) + "." + std::to_string(capability % 10);
}

/// Which GPU computes, and how.
struct GpuSettings {
  int device = 0;  ///< CUDA's number
  Element element = Element::fp16;
  bool deterministic = false;  ///< only engines of cuDNN's that give the same bits every time
  /// Whether compile() and make_training() time cuDNN's proposals and keep the fastest.
  bool autotune = false;
  /// Where choices are kept for later runs, which follow them also without autotune; empty:
  /// nowhere.
  std::string cache_folder = {};
  /// Gets a line of text every few seconds while proposals are timed; null: nobody does. Thread:
  /// the caller's of compile() or make_training().
  std::function<void(const std::string&)> progress = {};
};

/// How cuDNN's engines were chosen, so far.
struct GpuEngines {
  std::size_t timed = 0;             ///< requests whose proposals were timed
  std::size_t known = 0;             ///< requests that an earlier run had timed
  std::size_t plans = 0;             ///< proposals that were timed
  std::size_t left = 0;              ///< requests for which no time was left
  double seconds = 0;                ///< which that took
  std::vector<std::string> dropped;  ///< proposals that could not be executed, and why
  std::size_t checked = 0;           ///< requests of fused steps
  double check_seconds = 0;          ///< which that took
  std::vector<std::string> notes;    ///< what is wrong with the cache
  std::string fingerprint;           ///< of all choices: other choices round differently
};

/// A fused step that is not to be, because cuDNN's engine for it was refused or computes something
/// else than its parts.
struct GpuRefusal {
  std::string pattern, shape;  ///< what is computed, and of what sizes
  std::string why;
};

struct GpuTrainingSettings {
  RuleSettings rule;
  std::vector<DecaySegment> decays;  ///< ascending, covering all parameters that learn
  std::vector<StatisticsMomentum> momenta;
  /// Follows the running statistics as the moving average follows the parameters; empty: nothing.
  View averaged_statistics = {};
  LossScaleSettings loss_scale;  ///< of fp16; other types need none
  /// Of fp16. It multiplies gradients of sums weighted by GpuBatchNumbers::sample_weight.
  float first_loss_scale = 65536;
  bool accumulates = false;  ///< steps of several batches
  bool graph = true;         ///< a step is launched as CUDA graphs: one, unless sums go between
};

/// What this rank updates where the ranks share the optimizer.
struct GpuPart {
  /// Of the parameters: ascending, disjoint. Each begins at a multiple of 4 and, but for the last,
  /// has a multiple of 4. Slots hold them one behind the other, but for "ema", which is whole.
  std::vector<Range> ranges;
  /// All ranks have the sums of the head and of so many gradients in front; of those behind, each
  /// has the sums of its ranges.
  std::size_t summed = 0;
  /// What is queued on the stream from now on waits for sums started so far.
  std::function<void()> scattered;
  /// Brings all ranks' ranges of the parameters to all; what is queued on the stream from now on
  /// waits for that.
  std::function<void()> gather;
};

/// What the ranks sum in a step, in one buffer of the GPU's memory: `head` numbers, the first 16 of
/// which are results of the step and the rest BatchNorm statistics, then the gradients. Behind them
/// there may be zeros.
struct GpuStepSums {
  View all;
  std::size_t head = 16;
  /// Sums of the buffer from element `first` on may start, behind what is queued on the stream.
  std::function<void(std::size_t first)> final_from;
  /// Starts what is left; what is queued on the stream from now on waits for all sums.
  std::function<void()> finish;
  /// Throws what went wrong with sums; called while the host waits for a step.
  std::function<void()> check;
  Program::SumOverRanks sum_over_ranks = {};
  /// Whether these may be called in a capture, to be part of a step's graph. Else they are called
  /// between graphs.
  bool captured = true;
  /// The places at which final_from() starts sums: it is called no more often than that takes.
  /// Empty: any.
  std::vector<std::uint64_t> starts = {};
  /// Whether a step is captured, which all ranks do or none. Called once for each kind of step
  /// until it says no; `why` says why this rank's GPU cannot capture it, or nothing. Null: this
  /// rank decides alone.
  std::function<bool(const std::string& why)> agree_on_capture = {};
  std::optional<GpuPart> part = {};  ///< none: each rank updates all parameters
};

/// What the host says of a batch's part in a step.
struct GpuBatchNumbers {
  bool first = true, last = true;  ///< of the batches of this step
  std::int64_t step = 0;           ///< steps before this one
  double learning_rate = 0;
  double sample_weight = 1;    ///< 1 / samples of the step, on all ranks
  double share = 1;            ///< this rank's part of those samples in this batch
  bool stop = false;           ///< this rank asks to end after the step
  int signal = 0;              ///< that made it ask for that or something else, if one did
  bool save = false;           ///< this rank asks all ranks to save behind the step
  bool measure_links = false;  ///< this rank asks that the hosts time their links
  bool unreadable = false;     ///< this rank asks that all hear of samples it could not read
};

/// What a step came to, over all ranks.
struct GpuOutcome {
  std::int64_t step = 0;                              ///< GpuBatchNumbers::step
  double loss = 0;                                    ///< mean cross-entropy, without L2
  double l2_loss = 0;                                 ///< as Optimizer::l2_loss()
  double top1 = 0;                                    ///< fraction of the samples
  float stop = 0, signalled = 0, signal = 0;          ///< sums over the ranks
  float save = 0, measure_links = 0, unreadable = 0;  ///< likewise
  /// Nothing was updated: a gradient is no finite number. The loss scale was lowered.
  bool skipped = false;
  bool not_finite = false;  ///< and no loss scale can mend that, or the loss itself is none
  double loss_scale = 1;    ///< of the next step
  /// Where the GPU's time went; `idle`: with nothing to do since the step before, `exposed`:
  /// waiting for sums.
  double idle_s = 0, forward_s = 0, backward_s = 0, exposed_s = 0, update_s = 0;
  /// Of its batches: writing them where the GPU copies from, by the host's clock, and the copies to
  /// the GPU, by events on their own stream. The GPU may have been at work meanwhile.
  double staged_s = 0, copy_s = 0;
};

/// Training steps on one GPU. They are queued, and the host goes on: queue() waits only until the
/// batch three before has been copied, and for what GpuStepSums waits for. One thread.
class GpuTraining {
 public:
  virtual ~GpuTraining() = default;
  /// The optimizer's state, by its names in checkpoints: this rank's part of it (GpuPart).
  virtual std::vector<std::pair<std::string, View>> slots() const = 0;
  /// {loss scale, good steps since it changed, steps skipped}; saved, they make a resumed run the
  /// same to the bit. Adam's bias corrections and the moving average's warm-up do not count steps
  /// that were skipped.
  virtual View loss_scale() const = 0;
  /// Optimizer state as at the start of training, for the parameters as they are.
  virtual void reset() = 0;
  /// To be called when parameters were written by others. Waits.
  virtual void refresh() = 0;
  /// Queues one batch of a step, and with the last of them the sums and the update. The first step
  /// is launched kernel by kernel, later ones as graphs.
  virtual void queue(const Batch& batch, const GpuBatchNumbers& numbers) = 0;
  /// The oldest outcome not taken yet, once it is there: always when more than `ahead` steps are
  /// under way, and waiting for it. Take it after every queue().
  virtual std::optional<GpuOutcome> outcome(int ahead) = 0;
  /// Ends use of what others own (captured sums), before those go.
  virtual void close() = 0;
};

/// Copies of a training state to the host that training does not wait for.
class GpuSnapshot {
 public:
  virtual ~GpuSnapshot() = default;
  /// Pins `targets`, which stay until release(). Costs milliseconds for each 100 MB.
  virtual void pin(std::span<const std::span<float>> targets) = 0;
  /// Starts to copy the state as it is behind what is queued. `targets` stay until release(), and
  /// are pinned unless they lie in what pin() was given. Never waits: where a copy is under way,
  /// the GPU ends that first.
  virtual void start(std::span<const std::span<float>> targets) = 0;
  /// Whether no copy is under way. Never waits. Makes the GPU this thread's. Thread: any.
  virtual bool done() = 0;
  /// Waits for the copy under way; no target is used from here on.
  virtual void release() = 0;
};

/// cuDNN and our kernels on one GPU. Rounds on its stream(). Its programs and trainings share the
/// memory of their activations, because their work is queued on that one stream.
class GpuBackend : public Backend, public Rounding {
 public:
  /// The cudaStream_t that all is queued on.
  virtual void* stream() const = 0;
  virtual Element element() const = 0;
  /// What it is, for the user: "NVIDIA H100 80GB HBM3, 79 GiB".
  virtual std::string title() const = 0;
  /// Its compute capability: 90 is 9.0.
  virtual int capability() const = 0;
  /// Its PCI bus id: "0000:3b:00.0".
  virtual std::string bus_id() const = 0;
  virtual GpuEngines engines() const = 0;
  /// What choices of engines depend on beside the step, as a line: equal ones may be exchanged.
  virtual std::string engine_scope() const = 0;
  /// All choices that are known, for follow().
  virtual std::string engine_choices() const = 0;
  /// From now on choices are these of an equal backend, and nothing is timed or kept here. Programs
  /// that are there stay as they are.
  virtual void follow(const std::string& choices) = 0;
  /// Runs each fused step of `schedule` that was not checked before on random numbers, beside the
  /// same step in parts, and returns those that are refused. Waits.
  virtual std::vector<GpuRefusal> check_fusions(const Schedule& schedule) = 0;
  /// supports() says no to these from now on; the same on all ranks, whose schedules must agree.
  virtual void refuse(const std::vector<GpuRefusal>& refusals) = 0;
  virtual std::unique_ptr<GpuTraining> make_training(const Schedule& schedule,
                                                     const Buffers& buffers, std::uint64_t seed,
                                                     const GpuStepSums& sums,
                                                     const GpuTrainingSettings& settings) = 0;
  /// The views outlive it. Takes as much GPU memory as they do.
  virtual std::unique_ptr<GpuSnapshot> make_snapshot(const std::vector<View>& state) = 0;
};

/// Makes the GPU this thread's. Throws Error (usage) where there is no driver, no such GPU, one
/// that is too old or that the build has no kernels for, or no CUDA in the build.
std::unique_ptr<GpuBackend> make_gpu_backend(const GpuSettings& settings);

/// What CUDA answers in this process about GPUs. Facts only: choose_device() judges them.
struct GpusHere {
  bool in_build = true;  ///< whether this build has CUDA
  int count = 0;         ///< GPUs that this process sees
  std::string why = {};  ///< in CUDA's words, where there is none
  int cuda = 0;          ///< the version of the build's CUDA: 13000 is 13.0
  int driver_cuda = 0;   ///< the newest that the driver runs; 0: there is no libcuda.so.1
  std::vector<int> capabilities = {};  ///< of each GPU: 90 is 9.0
  std::string kernels = {};            ///< CMAKE_CUDA_ARCHITECTURES with commas; empty: not known
  std::string missing = {};            ///< a library that a GPU wants and that cannot be loaded
};
GpusHere gpus_here();

/// Whether kernels of the build run on a GPU of this compute capability: machine code, or PTX that
/// its driver can compile.
bool has_kernels_for(int capability, const GpusHere& here);

/// The versions of CUDA's runtime and cuDNN; empty where the build has no CUDA. Needs no GPU.
LibraryVersions gpu_libraries();

/// The NVIDIA GPUs of this machine as its kernel lists them. Neither CUDA nor a driver is needed.
struct InstalledGpus {
  std::vector<std::string> names = {};  ///< by the driver; without it, by the PCI bus
  std::string driver = {};        ///< the version of NVIDIA's driver; empty where none is loaded
  std::string other_driver = {};  ///< the module that holds the first GPU instead: "nouveau"
  std::string hidden = {};  ///< the variable that hides all GPUs from this process, and its value
};

/// Reads /proc/driver/nvidia, else /sys/bus/pci/devices. A GPU that is handed to a virtual machine
/// (vfio-pci) is not counted. RINGTRAIN_SYSTEM_ROOT names a folder to read instead of /, for tests.
InstalledGpus find_installed_gpus();

}  // namespace ringtrain::compute
