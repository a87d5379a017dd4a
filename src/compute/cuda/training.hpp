#pragma once
#include <array>
#include <deque>
#include <functional>
#include <optional>

#include "compute/cuda/program.hpp"
#include "compute/cuda/runtime/batch_copies.hpp"
#include "compute/cuda/runtime/device.hpp"
#include "ringtrain/compute/gpu.hpp"

namespace ringtrain::compute::cuda {

/// A training step, queued: the batch on a stream of its own; forward, backward, sums and update as
/// one graph, as graphs with sums between them, or kernel by kernel; results copied back and read
/// steps later. See GpuTraining.
class CudaTraining final : public GpuTraining {
 public:
  CudaTraining(const Schedule& schedule, const Buffers& buffers, std::uint64_t seed,
               const CudaProgram::Parts& parts, const GpuStepSums& sums,
               const GpuTrainingSettings& settings);
  ~CudaTraining() override;

  std::vector<std::pair<std::string, View>> slots() const override { return slots_; }
  View loss_scale() const override { return {&record_at()->update.loss_scale, 3}; }
  void reset() override;
  void refresh() override;
  void queue(const Batch& batch, const GpuBatchNumbers& numbers) override;
  std::optional<GpuOutcome> outcome(int ahead) override;
  void close() override;

 private:
  static constexpr int steps_ahead = BatchCopies::ahead;

  // `updated` and `gathered`: where the ranks share the optimizer.
  enum Mark { begin, forward_done, backward_done, summed, updated, gathered, done, marks };
  /// What a step leaves on the GPU for the host, and for the next step.
  struct Record {
    float results[kernels::step_results];
    kernels::UpdateState update;
    std::uint64_t times[marks];
  };
  /// Of a step that was captured: a graph, and the sums that are queued behind it.
  struct Piece {
    Graph graph;
    std::function<void()> sums = {};
  };
  using Pieces = std::vector<Piece>;
  enum class Sums { queued, left_out, between_pieces };
  struct Pending {
    std::int64_t step;
    int record;
  };

  Record* record_at() const { return reinterpret_cast<Record*>(record_.data()); }
  kernels::UpdateState* update_state() const { return &record_at()->update; }
  View gradients() const;
  std::vector<std::size_t> bucket_starts() const;
  void add_slots();
  kernels::UpdateBuffers update_buffers() const;
  void bring_batch(const Batch& batch, const GpuBatchNumbers& numbers);
  void launch(bool first, bool last);
  Pieces capture_steps(bool first, bool last);
  Pieces capture_pieces(bool first, bool last, Sums sums);
  void sum(const std::function<void()>& queue);
  void queue_steps(bool first, bool last);
  void queue_sums(std::size_t first);
  void queue_update();
  void queue_part_results();
  void queue_part_update();
  void mark(Mark which);
  void send_record(std::int64_t step);
  void wait_for(const Event& event) const;
  GpuOutcome outcome_of(const Pending& pending, const Record& record, std::uint64_t done_before);

  const CudaProgram::Parts parts_;
  const Buffers buffers_;
  const GpuStepSums sums_;
  const GpuTrainingSettings settings_;
  const std::size_t learning_;  // parameters, in front of those that are frozen
  DeviceMemory memory_;
  DeviceBytes narrow_parameters_, record_, decays_, workspace_;
  CudaProgram program_;
  std::vector<Buffer> buffers_held_;
  std::vector<std::pair<std::string, View>> slots_;
  Buffer accumulated_;
  std::size_t handed_over_ = 0;  // gradients [handed_over_, end) may be summed

  BatchCopies batches_;
  bool captures_;
  std::array<Pieces, 4> captured_;  // by whether it is the first and the last batch of its step
  std::array<bool, 4> launched_{};
  Sums mode_ = Sums::queued;
  Pieces pieces_;  // being captured
  std::optional<Capture> capture_;
  std::array<PinnedBytes, steps_ahead + 2> records_;
  std::array<Event, steps_ahead + 2> recorded_;
  std::uint64_t steps_queued_ = 0;
  std::deque<Pending> pending_;
  std::uint64_t done_before_ = 0;  // the GPU's time behind the step taken last
};

}  // namespace ringtrain::compute::cuda
