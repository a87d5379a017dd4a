#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "allreduce/nccl/nccl_api.hpp"
#include "ringtrain/allreduce/nccl/staged_sums.hpp"
#include "ringtrain/base/memory/memory.hpp"

namespace ringtrain::allreduce {

/// See StagedSums. Thread: main.
class HostStaging final : public StagedSums {
 public:
  HostStaging(std::shared_ptr<NcclApi> calls, Communicator& gpus, Communicator& cpus, View all,
              StagedOptions options);
  /// Waits for copies under way.
  ~HostStaging() override;

  Memory& memory() override { return gpus_.memory(); }
  void broadcast(View values, int root) override { gpus_.broadcast(values, root); }
  void start_allreduce(View values, const SumOptions& options) override;
  void finish() override;
  void check() override { gpus_.check(); }
  void tune(const RingTuning& ring, int at_once) override { cpus_.tune(ring, at_once); }
  CompressionState* compression_state() override { return cpus_.compression_state(); }
  void abort() noexcept override;
  bool finite() const override { return finite_; }

 private:
  struct Sum {
    View on_gpu, on_host;
    SumOptions options;
    std::size_t event;
  };

  GpuStream compute() const { return static_cast<GpuStream>(options_.gpu.compute_stream); }
  void wait_for(const OwnedEvent& event);
  void follow_scale();

  const std::shared_ptr<NcclApi> calls_;
  Communicator& gpus_;
  Communicator& cpus_;
  const View all_;
  const StagedOptions options_;
  const OwnedStream copies_;
  const OwnedEvent produced_, back_;
  std::vector<OwnedEvent> copied_;  // of each sum between two finish()
  const Buffer host_;               // mirrors all_
  const bool pinned_;
  std::vector<Sum> started_;
  std::optional<double> scale_;  // of what compression left out
  bool finite_ = true;
};

}  // namespace ringtrain::allreduce
