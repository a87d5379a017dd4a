#include "compute/cuda/program.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <variant>

#include "compute/cuda/bind/bind.hpp"
#include "compute/cuda/kernels/arguments/elementwise.hpp"
#include "ringtrain/base/error.hpp"

namespace ringtrain::compute::cuda {
namespace {

// Bytes of one image of the batch, as it comes from the host.
std::size_t image_bytes(const Schedule& schedule) {
  for (const Step& step : schedule.steps)
    if (const auto* input = std::get_if<Input>(&step)) return schedule.tensors[input->y].features();
  return 0;
}

}  // namespace

CudaProgram::CudaProgram(const Schedule& schedule, const Buffers& buffers, std::uint64_t seed,
                         const Parts& parts, const void* narrow_parameters, const float* loss_scale)
    : schedule_(schedule),
      parts_(parts),
      parameters_(buffers.parameters),
      block_(schedule.batch, image_bytes(schedule)),
      final_from_(finality(schedule)),
      small_(block_.small_bytes()),
      totals_(sizeof(kernels::LossTotals)),
      rounded_(narrow_parameters == nullptr && parts.element != Element::fp32
                   ? schedule.parameters * bytes_of(parts.element)
                   : 0),
      narrow_parameters_(narrow_parameters != nullptr ? narrow_parameters
                         : rounded_.size() > 0        ? static_cast<void*>(rounded_.data())
                                                      : buffers.parameters.data()),
      binder_(schedule_, parts.element, seed, parts.engines, parts.runner, parts.stream,
              places(buffers, loss_scale)) {
  bind_steps();
}

ProgramPlaces CudaProgram::places(const Buffers& buffers, const float* loss_scale) const {
  return {buffers, narrow_parameters_, loss_scale,         block_, small_.data(),
          &batch_, totals_at(),        &parts_.activations};
}

void CudaProgram::bind_steps() {
  for (std::size_t s = 0; s < schedule_.steps.size(); ++s) try {
      const Step& step = schedule_.steps[s];
      Action action = std::visit([&](const auto& kind) { return bind(kind, binder_); }, step);
      const bool reads_images = std::holds_alternative<Input>(step);
      if (reads_images) inputs_.push_back(std::move(action));
      actions_.push_back(reads_images ? Action() : std::move(action));
    } catch (const Error& failure) {
      const std::string step = fmt::format("step {} ({})", s, name_of(schedule_.steps[s]));
      if (failure.code() == Exit::internal) throw Error(step, failure.what());
      throw Error(failure.code(), step, failure.what());
    }
  if (parts_.tuner != nullptr) parts_.tuner->tune(binder_.engine_uses());
  binder_.complete();
}

void CudaProgram::round_parameters() {
  if (rounded_.size() == 0) return;
  kernels::convert(Element::fp32, parts_.element, parameters_.size(), parameters_.data(),
                   rounded_.data(), parts_.stream);
}

void CudaProgram::queue_batch(const std::byte* block) {
  batch_ = block;
  check(cudaMemcpyAsync(small_.data(), block, block_.small_bytes(), cudaMemcpyDeviceToDevice,
                        parts_.stream),
        "cudaMemcpyAsync");
  for (const Action& input : inputs_) input();
}

void CudaProgram::queue_forward() {
  check(cudaMemsetAsync(totals_.data(), 0, totals_.size(), parts_.stream), "cudaMemsetAsync");
  queue(0, schedule_.backward, {});
}

void CudaProgram::queue_backward(const Final& final) {
  binder_.widening().begin();
  queue(schedule_.backward, actions_.size(), final);
  binder_.widening().queue(0);
}

bool CudaProgram::completes_bucket(std::size_t final_from, std::size_t told) const {
  return final_from == 0 || bucket_starts_.empty() ||
         std::ranges::any_of(bucket_starts_, [&](std::size_t start) {
           return start >= final_from && start < told;
         });
}

void CudaProgram::queue(std::size_t first, std::size_t end, const Final& final) {
  std::size_t told = schedule_.parameters;
  for (std::size_t s = first; s < end; ++s) {
    if (actions_[s]) actions_[s]();
    if (!final || final_from_[s] >= told || !completes_bucket(final_from_[s], told)) continue;
    told = final_from_[s];
    binder_.widening().queue(told);
    final(told);
  }
}

StepResult CudaProgram::run(const Batch& batch, double sample_weight, const Final& final,
                            const SumOverRanks& sum) {
  set_sum_over_ranks(sum);
  if (pinned_.size() == 0) {
    pinned_ = PinnedBytes(block_.bytes());
    staged_ = DeviceBytes(block_.bytes());
    result_ = PinnedBytes(sizeof(kernels::LossTotals));
  }
  StepNumbers numbers{};
  numbers.sample_weight = static_cast<float>(sample_weight);
  block_.fill(pinned_.data(), batch, numbers);
  check(cudaMemcpyAsync(staged_.data(), pinned_.data(), block_.bytes(), cudaMemcpyHostToDevice,
                        parts_.stream),
        "cudaMemcpyAsync");
  round_parameters();
  queue_batch(staged_.data());
  queue_forward();
  queue_backward(final);
  check(cudaMemcpyAsync(result_.data(), totals_.data(), result_.size(), cudaMemcpyDeviceToHost,
                        parts_.stream),
        "cudaMemcpyAsync");
  check(cudaStreamSynchronize(parts_.stream), "cudaStreamSynchronize");
  kernels::LossTotals totals;
  std::memcpy(&totals, result_.data(), sizeof totals);
  return {totals.loss, totals.samples, totals.top1, totals.top5};
}

std::vector<float> CudaProgram::logits() const {
  std::vector<float> values(binder_.elements(schedule_.logits));
  const DeviceBytes floats(values.size() * sizeof(float));
  kernels::convert(parts_.element, Element::fp32, values.size(), at(schedule_.logits),
                   floats.data(), parts_.stream);
  check(cudaMemcpyAsync(values.data(), floats.data(), floats.size(), cudaMemcpyDeviceToHost,
                        parts_.stream),
        "cudaMemcpyAsync");
  check(cudaStreamSynchronize(parts_.stream), "cudaStreamSynchronize");
  return values;
}

std::size_t CudaProgram::bytes() const {
  return binder_.bytes() + small_.size() + rounded_.size() + staged_.size();
}

}  // namespace ringtrain::compute::cuda
