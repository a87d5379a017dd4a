#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "allreduce/nccl/nccl_api.hpp"
#include "ringtrain/allreduce/nccl/staged_sums.hpp"
#include "ringtrain/base/memory/memory.hpp"

namespace ringtrain::allreduce {

/// What compression keeps of gradients that have a factor: read and written as if that were 1, so
/// that it does not depend on the factor of the step it is from.
class ScaledState final : public CompressionState {
 public:
  /// `state` outlives it.
  explicit ScaledState(CompressionState& state) : state_(state) {}
  void accept() override { state_.accept(); }
  void scale(float factor) override { state_.scale(factor); }
  std::size_t size() const override { return state_.size(); }
  void read(std::span<float> values, float factor) const override {
    state_.read(values, factor / factor_);
  }
  void write(std::span<const float> values) override;
  /// Gradients have this factor from now on. Exact for powers of two.
  void follow(float factor);

 private:
  CompressionState& state_;
  float factor_ = 1;
};

/// See StagedSums. Thread: main.
class HostStaging final : public StagedSums {
 public:
  HostStaging(std::shared_ptr<NcclApi> calls, Communicator& gpus, Communicator& cpus, View all,
              void* compute_stream);
  /// Waits for copies under way.
  ~HostStaging() override;

  Memory& memory() override { return gpus_.memory(); }
  void broadcast(View values, int root) override { gpus_.broadcast(values, root); }
  void start_allreduce(View values, const SumOptions& options) override;
  void finish() override;
  void check() override { gpus_.check(); }
  CompressionState* compression_state() override { return state_ ? &*state_ : nullptr; }
  void abort() noexcept override;
  bool finite() const override { return finite_; }
  void follow_scale(View scale) override { gpu_scale_ = scale; }
  bool pinned() const override { return pinned_; }

 private:
  struct Sum {
    View on_gpu, on_host;
    SumOptions options;
    std::size_t event;
  };

  float* host_scale() const { return host_.view().data() + all_.size(); }
  void wait_for(const OwnedEvent& event);

  const std::shared_ptr<NcclApi> calls_;
  Communicator& gpus_;
  Communicator& cpus_;
  const View all_;
  const GpuStream compute_;
  const OwnedStream copies_;
  const OwnedEvent produced_, back_;
  std::vector<OwnedEvent> copied_;  // of each sum between two finish()
  const Buffer host_;               // mirrors all_ and, behind it, the scale
  const bool pinned_;
  std::vector<Sum> started_;
  View gpu_scale_ = {};
  std::optional<ScaledState> state_;  // where this rank compresses
  bool finite_ = true;
};

}  // namespace ringtrain::allreduce
