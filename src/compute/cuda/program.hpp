#pragma once
#include <memory>
#include <vector>

#include "compute/cuda/bind/binder.hpp"

namespace ringtrain::compute::cuda {

/// A schedule's steps on one GPU, bound to their memory. Queues on one stream; only run() waits.
class CudaProgram final : public Program {
 public:
  /// What a program of one backend shares with the others. Outlives it.
  struct Parts {
    Element element;
    Engines& engines;
    CudnnRunner& runner;
    cudaStream_t stream;
    SharedBytes& activations;
    Autotuner* tuner = nullptr;  ///< chooses engines in the program's memory; null: heuristics do
  };
  /// `narrow_parameters`: the rounded copy of the parameters that the steps read, kept up to date
  /// by the caller; null: run() rounds them anew. `loss_scale`: on the GPU; null: 1.
  CudaProgram(const Schedule& schedule, const Buffers& buffers, std::uint64_t seed,
              const Parts& parts, const void* narrow_parameters = nullptr,
              const float* loss_scale = nullptr);

  StepResult run(const Batch& batch, double sample_weight, const Final& final,
                 const SumOverRanks& sum) override;
  std::vector<float> logits() const override;
  std::size_t bytes() const override;

  /// A tensor's memory on the GPU, which it shares with others.
  void* at(TensorId id) const { return binder_.at(id); }
  /// How a batch travels to the GPU.
  const BatchBlock& block() const { return block_; }
  /// Takes in a block that lies on the GPU: it must stay until the stream is past this.
  void queue_batch(const std::byte* block);
  /// What BatchNorms over all ranks are summed by, from now on, also in a capture.
  void set_sum_over_ranks(const SumOverRanks& sum) { binder_.set_sum_over_ranks(sum); }
  /// All else. The same calls every time, so that they can be captured.
  void queue_forward();
  /// Calls `final` as Program::run does, when what makes the gradients final is queued, but only
  /// where a bucket begins, or before that.
  void queue_backward(const Final& final);
  /// The first parameters of the buckets in which gradients are wanted, in any order; none: as soon
  /// as they are final. Each costs a launch.
  void set_bucket_starts(std::vector<std::size_t> starts) { bucket_starts_ = std::move(starts); }

  /// Of the batch, on the GPU; zeroed by queue_forward().
  const kernels::LossTotals* totals() const { return totals_at(); }
  const StepNumbers* numbers() const { return block_.numbers(small_.data()); }

 private:
  kernels::LossTotals* totals_at() const {
    return reinterpret_cast<kernels::LossTotals*>(totals_.data());
  }
  ProgramPlaces places(const Buffers& buffers, const float* loss_scale) const;
  void bind_steps();
  void round_parameters();
  void queue(std::size_t first, std::size_t end, const Final& final);
  bool completes_bucket(std::size_t final_from, std::size_t told) const;

  const Schedule schedule_;
  const Parts parts_;
  const View parameters_;
  const BatchBlock block_;
  const std::vector<std::size_t> final_from_;
  std::vector<std::size_t> bucket_starts_;
  DeviceBytes small_, totals_, rounded_;
  const void* const narrow_parameters_;
  const std::byte* batch_ = nullptr;  // the block being taken in
  Binder binder_;
  std::vector<Action> inputs_, actions_;  // the steps that read images, and all others (or nothing)
  PinnedBytes pinned_, result_;           // of run()
  DeviceBytes staged_;
};

}  // namespace ringtrain::compute::cuda
