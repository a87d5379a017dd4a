#include "allreduce/nccl/host_staging.hpp"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdint>
#include <thread>
#include <utility>

#include "ringtrain/base/error.hpp"

namespace ringtrain::allreduce {
namespace {

// Without branches, for vectors.
bool all_finite(std::span<const float> values) {
  constexpr std::uint32_t exponent = 0x7f800000;
  std::uint32_t found = 0;
  for (const float value : values)
    found |=
        static_cast<std::uint32_t>((std::bit_cast<std::uint32_t>(value) & exponent) == exponent);
  return found == 0;
}

}  // namespace

void ScaledState::write(std::span<const float> values) {
  state_.write(values);
  factor_ = 1;
}

void ScaledState::follow(float factor) {
  if (factor != factor_) state_.scale(factor / factor_);
  factor_ = factor;
}

HostStaging::HostStaging(std::shared_ptr<NcclApi> calls, Communicator& gpus, Communicator& cpus,
                         View all, void* compute_stream)
    : StagedSums({.rank = gpus.rank(),
                  .size = gpus.size(),
                  .overlaps = cpus.overlaps(),
                  .why_not_captured = "gradients are compressed by the CPUs"}),
      calls_(std::move(calls)),
      gpus_(gpus),
      cpus_(cpus),
      all_(all),
      compute_(static_cast<GpuStream>(compute_stream)),
      copies_(*calls_, calls_->stream_create()),
      produced_(*calls_, calls_->event_create()),
      back_(*calls_, calls_->event_create()),
      host_(cpus.memory().allocate(all.size() + 1)),
      pinned_(calls_->pin(host_.view().data(), host_.view().size() * sizeof(float))) {
  if (CompressionState* const state = cpus.compression_state()) state_.emplace(*state);
}

HostStaging::~HostStaging() {
  calls_->stream_synchronize(copies_.get());
  if (pinned_) calls_->unpin(host_.view().data());
}

void HostStaging::start_allreduce(View values, const SumOptions& options) {
  refuse_hook(options);
  if (values.size() == 0) return;
  const auto place = static_cast<std::size_t>(values.data() - all_.data());
  expects(place + values.size() <= all_.size(), "StagedSums: slices of the same numbers");
  const std::size_t event = started_.size();
  if (event == copied_.size()) copied_.emplace_back(*calls_, calls_->event_create());
  const View on_host = host_.view().slice(place, values.size());
  calls_->event_record(produced_.get(), compute_);
  calls_->stream_wait_event(copies_.get(), produced_.get());
  if (event == 0 && gpu_scale_.size() > 0)
    calls_->copy(host_scale(), gpu_scale_.data(), sizeof(float), copies_.get());
  calls_->copy(on_host.data(), values.data(), values.size() * sizeof(float), copies_.get());
  calls_->event_record(copied_[event].get(), copies_.get());
  started_.push_back({values, on_host, options, event});
}

// The GPU may still be in the backward pass: what comes first is summed beside it.
void HostStaging::finish() {
  if (started_.empty()) return;
  for (const Sum& sum : started_) {
    wait_for(copied_[sum.event]);
    if (&sum == &started_.front() && state_ && gpu_scale_.size() > 0) state_->follow(*host_scale());
    cpus_.start_allreduce(sum.on_host, sum.options);
  }
  cpus_.finish();
  for (const Sum& sum : started_)
    calls_->copy(sum.on_gpu.data(), sum.on_host.data(), sum.on_host.size() * sizeof(float),
                 copies_.get());
  calls_->event_record(back_.get(), copies_.get());
  calls_->stream_wait_event(compute_, back_.get());
  finite_ =  // beside the copies
      std::ranges::all_of(started_, [](const Sum& sum) { return all_finite(sum.on_host.host()); });
  started_.clear();
}

// As long as it takes: the watchdog knows what a step may take.
void HostStaging::wait_for(const OwnedEvent& event) {
  using Clock = std::chrono::steady_clock;
  for (const auto start = Clock::now(); !calls_->event_query(event.get());) {
    gpus_.check();
    if (Clock::now() - start > std::chrono::microseconds(50))
      std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

void HostStaging::abort() noexcept {
  cpus_.abort();
  gpus_.abort();
}

std::unique_ptr<StagedSums> make_staged_sums(Communicator& gpus, Communicator& cpus, View all,
                                             void* compute_stream) {
  return std::make_unique<HostStaging>(make_nccl_calls(), gpus, cpus, all, compute_stream);
}

}  // namespace ringtrain::allreduce
