#pragma once
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "compute/cuda/bind/gradient_widening.hpp"
#include "compute/cuda/engines/autotuner.hpp"
#include "compute/cuda/engines/convolution.hpp"
#include "compute/cuda/engines/cudnn_runner.hpp"
#include "compute/cuda/kernels/arguments/softmax.hpp"
#include "compute/cuda/runtime/batch_block.hpp"
#include "compute/cuda/runtime/runtime.hpp"
#include "ringtrain/compute/backend.hpp"

namespace ringtrain::compute::cuda {

/// Queues a step's kernels on the program's stream. Waits for nothing, allocates nothing.
using Action = std::function<void()>;

/// Where a program's data are on the GPU.
struct ProgramPlaces {
  Buffers buffers;
  const void* narrow_parameters = nullptr;  ///< rounded copy; of fp32 the parameters themselves
  const float* loss_scale = nullptr;        ///< null: 1
  BatchBlock block;
  const std::byte* small = nullptr;  ///< of the block that is trained on, at a fixed place
  /// The whole block, which changes from step to step.
  const std::byte* const* batch = nullptr;
  kernels::LossTotals* totals = nullptr;
  /// Of tensors, which no step reads that has not written them in the same batch.
  SharedBytes* activations = nullptr;
};

/// Gives the steps of one schedule their memory, and cuDNN's engines. What it hands out is valid as
/// long as it lives; it never moves.
class Binder {
 public:
  /// All that is passed outlives this object.
  Binder(const Schedule& schedule, Element element, std::uint64_t seed, Engines& engines,
         CudnnRunner& runner, cudaStream_t stream, const ProgramPlaces& places);
  Binder(const Binder&) = delete;

  const Schedule& schedule() const { return schedule_; }
  Element element() const { return element_; }
  std::uint64_t seed() const { return seed_; }
  cudaStream_t stream() const { return stream_; }
  const ProgramPlaces& places() const { return places_; }

  const Shape& shape(TensorId id) const { return schedule_.tensors[id]; }
  std::size_t pixels(TensorId id) const { return shape(id).pixels(); }
  std::size_t channels(TensorId id) const { return shape(id).channels; }
  std::size_t elements(TensorId id) const { return shape(id).elements(); }
  /// Null for no_tensor.
  void* at(TensorId id) const;
  /// Elements from pixel to pixel: more than its channels where a tensor is a slice.
  std::size_t pitch(TensorId id) const { return channels(schedule_.place_of(id).of); }
  /// How an image is stored; null: as any other tensor.
  const StoredImage* stored_image(TensorId id) const;

  // Null for no_vector and for ranges that are not there.
  float* vector(VectorId id) const;
  /// In the type of the activations, for cuDNN.
  void* narrow(VectorId id) const;
  float* parameters(const std::optional<ParameterRange>& range) const;
  const void* narrow_parameters(ParameterRange range) const;
  float* gradients(const std::optional<ParameterRange>& range) const;
  float* statistics(StatisticsRange range) const;
  float* batch_statistics(StatisticsRange range) const;

  /// Zeroed memory for one step's own use, as long as the program lives.
  std::byte* keep(std::size_t bytes);
  /// Likewise, with `values` in it. Waits.
  float* keep_values(std::span<const float> values);
  /// For calls that say so: per-channel numbers that the BatchNorm with this beta leaves for its
  /// backward.
  struct Moments {
    float *scale, *bias, *mean, *inverse_deviation;
    float* ranks_count;  ///< pixels of all ranks, for a BatchNorm over those
  };
  Moments moments(ParameterRange beta);
  /// What BatchNormFinalize leaves for LoweredBetaOperand.
  float* lowered_beta(ParameterRange beta);

  /// What a max pool leaves for its backward pass (MaxPoolForwardOperands::winners).
  std::uint8_t* make_winners(const MaxPoolForward& pool);
  /// Null where its forward step left none.
  const std::uint8_t* winners(TensorId x, const Window& window) const;

  /// As Program::SumOverRanks, from now on. The program sets what is summed by.
  void sum_over_ranks(View values) const {
    if (sum_) sum_(values);
  }
  void set_sum_over_ranks(const Program::SumOverRanks& sum) { sum_ = sum; }

  /// Memory that all steps share, each for one kernel; workspace() is at least as large as all that
  /// was reserved, and there once the program is complete.
  void reserve(std::size_t bytes);
  void* workspace() const { return workspace_.data(); }
  float* floats() const { return reinterpret_cast<float*>(workspace_.data()); }

  /// Whether cuDNN has an engine for it.
  bool has_engine(const Request& request) { return engines_.ask(request).engine.has_value(); }
  /// Weights and their gradient lie where these say, unless null.
  Action cudnn(const Request& request, const void* weights = nullptr, void* gradient = nullptr);

  /// Where cuDNN may write the gradient of `range` in 16 bits. widening() brings it where it
  /// belongs.
  void* narrow_gradient(ParameterRange range);
  GradientWidening& widening() { return widening_; }

  /// What cuDNN is to do, on which memory. Valid as long as the binder.
  std::vector<EngineUse> engine_uses() const;
  /// After the last step was bound and engines were chosen: allocates the workspace, binds engines
  /// to it.
  void complete();
  std::size_t bytes() const { return bytes_ + workspace_.size() + widening_.bytes(); }

 private:
  // What cuDNN wants aligned to 16 bytes and is not: a copy before, or after.
  struct AlignedCopy {
    void *from, *to;
    std::size_t bytes;
  };
  struct EngineCall {
    RequestKey request;
    const Engine* engine;  // the answer's, whichever that is once the program is complete
    OperationGraph graph;
    std::vector<void*> data;
    std::vector<AlignedCopy> before, after;
    Action run;
  };

  void* place_of(const Operand& operand, const void* weights, void* gradient);
  void align(EngineCall& call, std::size_t value, bool is_written);
  void queue(const EngineCall& call) const;
  void copy(const AlignedCopy& detour) const;

  const Schedule& schedule_;
  const Element element_;
  const std::uint64_t seed_;
  Engines& engines_;
  CudnnRunner& runner_;
  const cudaStream_t stream_;
  const ProgramPlaces places_;
  std::map<TensorId, StoredImage> images_;
  std::vector<std::size_t> tensor_offsets_, vector_offsets_;
  std::shared_ptr<const DeviceBytes> arena_;  // other programs on this stream use it, too
  DeviceBytes vectors_, narrow_vectors_, workspace_;
  std::vector<DeviceBytes> kept_;
  std::map<std::size_t, Moments> moments_;  // by the first beta
  std::map<std::size_t, float*> lowered_betas_;
  struct Winners {
    TensorId x;
    Window window;
    std::uint8_t* data;
  };
  std::vector<Winners> winners_;
  Program::SumOverRanks sum_;
  GradientWidening widening_;
  std::vector<std::unique_ptr<EngineCall>> engine_calls_;
  std::size_t workspace_bytes_ = 0, bytes_ = 0;
};

}  // namespace ringtrain::compute::cuda
