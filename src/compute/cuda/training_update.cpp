// The optimizer's part of CudaTraining: its state, and the update of a step.
#include <algorithm>
#include <vector>

#include "compute/cuda/kernels/arguments/elementwise.hpp"
#include "compute/cuda/training.hpp"
#include "ringtrain/base/error.hpp"

namespace ringtrain::compute::cuda {

namespace {

// So is then each range's place in the slots.
bool are_aligned(const std::vector<Range>& ranges) {
  for (std::size_t i = 0; i < ranges.size(); ++i)
    if (ranges[i].first % 4 != 0 || (i + 1 < ranges.size() && ranges[i].count % 4 != 0))
      return false;
  return true;
}

}  // namespace

void CudaTraining::add_slots() {
  expects(!sums_.part || are_aligned(sums_.part->ranges), "GpuPart: ranges of whole 16 bytes");
  const std::size_t all = buffers_.parameters.size();
  std::size_t own = sums_.part ? 0 : learning_;
  if (sums_.part)
    for (const Range& range : sums_.part->ranges) own += range.count;
  const auto add = [&](const char* name, std::size_t size) {
    buffers_held_.push_back(memory_.allocate(size));
    slots_.emplace_back(name, buffers_held_.back().view());
  };
  for (const OptimizerSlot& slot : slots_of(settings_.rule.kind)) add(slot.name, own);
  if (settings_.rule.ema > 0) add("ema", all);
}

void CudaTraining::reset() {
  const std::vector<OptimizerSlot> kinds = slots_of(settings_.rule.kind);
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const View view = slots_[i].second;
    std::vector<float> values(view.size(), i < kinds.size() ? kinds[i].start : 0);
    if (i == kinds.size()) memory_.read(buffers_.parameters, values);  // the moving average
    memory_.write(values, view);
  }
  Record start{};
  start.update.loss_scale = parts_.element == Element::fp16 ? settings_.first_loss_scale : 1;
  write_and_wait(record_.data(), &start, sizeof start);
  refresh();
}

kernels::UpdateBuffers CudaTraining::update_buffers() const {
  const bool averages = settings_.rule.ema > 0;
  const std::size_t rule_slots = slots_.size() - (averages ? 1 : 0);
  return {.parameters = buffers_.parameters.data(),
          .gradients = gradients().data(),
          .gradient_element = Element::fp32,
          .slot0 = rule_slots > 0 ? slots_[0].second.data() : nullptr,
          .slot1 = rule_slots > 1 ? slots_[1].second.data() : nullptr,
          .average = averages ? slots_.back().second.data() : nullptr,
          .copy = narrow_parameters_.data(),
          .copy_element = parts_.element == Element::fp32 ? Element::fp16 : parts_.element,
          .segments = reinterpret_cast<const DecaySegment*>(decays_.data()),
          .segment_count = static_cast<std::uint32_t>(settings_.decays.size()),
          .workspace = reinterpret_cast<double*>(workspace_.data())};
}

void CudaTraining::queue_update() {
  if (sums_.part) queue_part_results();
  sum([this] { sums_.finish(); });
  mark(summed);
  kernels::UpdateState* state = update_state();
  const kernels::StepScalars* scalars = &program_.numbers()->update;
  // The loss and BatchNorm's statistics, too.
  const std::size_t summed_here = sums_.part ? sums_.head + sums_.part->summed : sums_.all.size();
  kernels::mark_not_finite(Element::fp32, summed_here, sums_.all.data(), state, parts_.stream);
  kernels::prepare_update(settings_.rule, scalars, state, parts_.stream);
  if (sums_.part) {
    queue_part_update();
  } else {
    kernels::clip_gradients(settings_.rule, learning_, update_buffers(), state, parts_.stream);
    kernels::measure_tensors(settings_.rule, update_buffers(), state, parts_.stream);
    kernels::update(settings_.rule, update_buffers(), {0, learning_}, scalars, state,
                    parts_.stream);
  }
  std::size_t first = 0;
  for (const auto& [end, momentum] : settings_.momenta) {
    kernels::move_average(end - first, sums_.all.data() + kernels::step_results + first,
                          buffers_.statistics.data() + first, momentum, state, parts_.stream);
    first = end;
  }
  const View averaged = settings_.averaged_statistics;
  kernels::move_average(averaged.size(), buffers_.statistics.data(), averaged.data(), state,
                        parts_.stream);
  LossScaleSettings scale = settings_.loss_scale;
  if (parts_.element != Element::fp16) scale.interval = 0;
  kernels::finish_update(scale, state, parts_.stream);
  check(cudaMemcpyAsync(record_at()->results, sums_.all.data(), sizeof(Record::results),
                        cudaMemcpyDeviceToDevice, parts_.stream),
        "cudaMemcpyAsync");
  mark(done);
}

// With the sums of the head, which all ranks get, go what each has of all: a gradient that is not
// finite keeps the update from all ranks, and the squares are part of the loss.
void CudaTraining::queue_part_results() {
  const GpuPart& part = *sums_.part;
  kernels::UpdateState* state = update_state();
  const auto decays = [](const DecaySegment& segment) { return segment.decay != 0; };
  if (std::ranges::any_of(settings_.decays, decays))
    for (const Range& range : part.ranges)
      kernels::add_squares(settings_.rule, update_buffers(), range, state, parts_.stream);
  sum([&part] { part.scattered(); });
  for (const Range& range : part.ranges)
    if (range.first >= part.summed && range.count > 0)
      kernels::mark_not_finite(Element::fp32, range.count, gradients().slice(range).data(), state,
                               parts_.stream);
  kernels::put_part(sums_.all.data(), state, parts_.stream);
}

// The moving average and the copy follow all parameters, also those that other ranks update.
void CudaTraining::queue_part_update() {
  const GpuPart& part = *sums_.part;
  kernels::UpdateBuffers buffers = update_buffers();
  buffers.average = nullptr;
  buffers.copy = nullptr;
  buffers.workspace = nullptr;  // the squares were added before
  for (const Range& range : part.ranges) {
    buffers.slots_from = range.first;
    kernels::update(settings_.rule, buffers, range, &program_.numbers()->update, update_state(),
                    parts_.stream);
    if (buffers.slot0 != nullptr) buffers.slot0 += range.count;
    if (buffers.slot1 != nullptr) buffers.slot1 += range.count;
  }
  mark(updated);
  sum([&part] { part.gather(); });
  mark(gathered);
  kernels::adopt(learning_, update_buffers(), update_state(), parts_.stream);
}

}  // namespace ringtrain::compute::cuda
