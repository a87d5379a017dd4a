#include "compute/cuda/bind/binder.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <variant>

#include "compute/cuda/bind/launches.hpp"
#include "ringtrain/base/error.hpp"
#include "ringtrain/compute/memory_plan.hpp"

namespace ringtrain::compute::cuda {
namespace {

constexpr std::size_t wanted_alignment = 16;

bool is_aligned(const void* data) {
  return reinterpret_cast<std::uintptr_t>(data) % wanted_alignment == 0;
}

}  // namespace

Binder::Binder(const Schedule& schedule, Element element, std::uint64_t seed, Engines& engines,
               CudnnRunner& runner, cudaStream_t stream, const ProgramPlaces& places)
    : schedule_(schedule),
      element_(element),
      seed_(seed),
      engines_(engines),
      runner_(runner),
      stream_(stream),
      places_(places),
      images_(stored_images(schedule, element)),
      widening_(element, places.buffers.gradients, stream) {
  const MemoryPlan plan = plan_memory(schedule, stored_bytes(schedule, element));
  tensor_offsets_ = plan.offset;
  arena_ = places.activations->hold(plan.bytes);
  std::size_t floats = 0;
  for (const int extent : schedule.vectors) {
    vector_offsets_.push_back(floats);
    floats += (static_cast<std::size_t>(extent) + 63) / 64 * 64;
  }
  vectors_ = DeviceBytes(floats * sizeof(float));
  if (element != Element::fp32) narrow_vectors_ = DeviceBytes(floats * bytes_of(element));
  bytes_ = plan.bytes + vectors_.size() + narrow_vectors_.size();
}

void* Binder::at(TensorId id) const {
  if (id == no_tensor) return nullptr;
  return arena_->data() + tensor_offsets_[id] + schedule_.place_of(id).first * bytes_of(element_);
}

const StoredImage* Binder::stored_image(TensorId id) const {
  const auto found = images_.find(id);
  return found == images_.end() ? nullptr : &found->second;
}

float* Binder::vector(VectorId id) const {
  if (id == no_vector) return nullptr;
  return reinterpret_cast<float*>(vectors_.data()) + vector_offsets_[id];
}

void* Binder::narrow(VectorId id) const {
  if (id == no_vector || element_ == Element::fp32) return vector(id);
  return narrow_vectors_.data() + vector_offsets_[id] * bytes_of(element_);
}

float* Binder::parameters(const std::optional<ParameterRange>& range) const {
  return range ? places_.buffers.parameters.slice(*range).data() : nullptr;
}

const void* Binder::narrow_parameters(ParameterRange range) const {
  return static_cast<const std::byte*>(places_.narrow_parameters) +
         range.first * bytes_of(element_);
}

float* Binder::gradients(const std::optional<ParameterRange>& range) const {
  return range ? places_.buffers.gradients.slice(*range).data() : nullptr;
}

float* Binder::statistics(StatisticsRange range) const {
  return places_.buffers.statistics.slice(range).data();
}

float* Binder::batch_statistics(StatisticsRange range) const {
  return places_.buffers.batch_statistics.slice(range).data();
}

std::byte* Binder::keep(std::size_t bytes) {
  kept_.emplace_back(bytes);
  if (bytes > 0) check(cudaMemsetAsync(kept_.back().data(), 0, bytes, stream_), "cudaMemsetAsync");
  bytes_ += bytes;
  return kept_.back().data();
}

Binder::Moments Binder::moments(ParameterRange beta) {
  const auto [place, is_new] = moments_.try_emplace(beta.first);
  if (is_new) {
    const std::size_t count = (beta.count + 63) / 64 * 64;
    auto* floats = reinterpret_cast<float*>(keep((4 * count + 1) * sizeof(float)));
    place->second = {floats, floats + count, floats + 2 * count, floats + 3 * count,
                     floats + 4 * count};
  }
  return place->second;
}

float* Binder::lowered_beta(ParameterRange beta) {
  float*& place = lowered_betas_[beta.first];
  if (place == nullptr) place = reinterpret_cast<float*>(keep(beta.count * sizeof(float)));
  return place;
}

std::uint8_t* Binder::make_winners(const MaxPoolForward& pool) {
  auto* data = reinterpret_cast<std::uint8_t*>(keep(elements(pool.y)));
  winners_.push_back({pool.x, pool.window, data});
  return data;
}

const std::uint8_t* Binder::winners(TensorId x, const Window& window) const {
  const auto found = std::ranges::find_if(
      winners_, [&](const Winners& w) { return w.x == x && w.window == window; });
  return found == winners_.end() ? nullptr : found->data;
}

void Binder::reserve(std::size_t bytes) { workspace_bytes_ = std::max(workspace_bytes_, bytes); }

void* Binder::place_of(const Operand& operand, const void* weights, void* gradient) {
  struct Visitor {
    Binder& b;
    const void* weights;
    void* gradient;
    void* operator()(const TensorOperand& o) const { return b.at(o.id); }
    void* operator()(const VectorOperand& o) const {
      if (!o.narrow) return b.vector(o.id) + o.first;
      return static_cast<std::byte*>(b.narrow(o.id)) + o.first * bytes_of(b.element_);
    }
    void* operator()(const ParameterOperand& o) const {
      return o.narrow ? const_cast<void*>(b.narrow_parameters(o.range)) : b.parameters(o.range);
    }
    void* operator()(const LoweredBetaOperand& o) const { return b.lowered_beta(o.range); }
    void* operator()(const GradientOperand& o) const { return b.gradients(o.range); }
    void* operator()(const WeightsOperand& o) const {
      return const_cast<void*>(weights != nullptr ? weights : b.narrow_parameters(o.range));
    }
    void* operator()(const WeightGradientOperand& o) const {
      return gradient != nullptr ? gradient : b.gradients(o.range);
    }
    void* operator()(const OnesOperand& o) const {
      return b.keep_values(std::vector<float>(o.count, 1.f));
    }
    void* operator()(const UnwantedOperand& o) const { return b.keep(o.count * sizeof(float)); }
  };
  return std::visit(Visitor{*this, weights, gradient}, operand);
}

float* Binder::keep_values(std::span<const float> values) {
  auto* data = reinterpret_cast<float*>(keep(values.size_bytes()));
  write_and_wait(data, values.data(), values.size_bytes());
  return data;
}

void Binder::align(EngineCall& call, std::size_t value, bool is_written) {
  void*& data = call.data[value];
  if (is_aligned(data)) return;
  const OperationGraph::Value& v = call.graph.values()[value];
  if (v.pitch > v.extents[1])
    throw Error(fmt::format("step with {} channels of {} that lie together", v.extents[1], v.pitch),
                "they begin where cuDNN cannot: give joined layers channels in multiples of 8");
  std::size_t bytes = bytes_of(v.element);
  for (const std::int64_t extent : v.extents) bytes *= static_cast<std::size_t>(extent);
  void* aligned = keep(bytes);
  if (is_written)
    call.after.push_back({aligned, data, bytes});
  else
    call.before.push_back({data, aligned, bytes});
  data = aligned;
}

Action Binder::cudnn(const Request& request, const void* weights, void* gradient) {
  const Answer& answer = engines_.ask(request);
  if (!answer.engine) throw Error("plan " + request.pattern + ", " + request.shape, answer.why);
  engine_calls_.push_back(
      std::make_unique<EngineCall>(request.key(), &*answer.engine, request.graph()));
  EngineCall& call = *engine_calls_.back();
  const std::vector<bool> written = call.graph.written();
  for (const OperationGraph::Value& value : call.graph.values()) {
    const std::size_t i = call.data.size();
    call.data.push_back(value.operand ? place_of(*value.operand, weights, gradient) : nullptr);
    align(call, i, written[i]);
  }
  return [this, &call] { queue(call); };
}

std::vector<EngineUse> Binder::engine_uses() const {
  std::vector<EngineUse> uses;
  for (const auto& call : engine_calls_)
    uses.push_back({call->request, &call->graph, call->data, places_.buffers.parameters});
  return uses;
}

void* Binder::narrow_gradient(ParameterRange range) {
  void* const data = keep(range.count * bytes_of(element_));
  widening_.add(range, data);
  return data;
}

void Binder::complete() {
  widening_.complete();
  for (const auto& call : engine_calls_) reserve(call->engine->workspace);
  workspace_ = DeviceBytes(workspace_bytes_);
  for (const auto& call : engine_calls_)
    call->run = runner_.bind(*call->engine, call->graph, call->data, workspace_.data());
}

void Binder::queue(const EngineCall& call) const {
  for (const AlignedCopy& detour : call.before) copy(detour);
  call.run();
  for (const AlignedCopy& detour : call.after) copy(detour);
}

void Binder::copy(const AlignedCopy& detour) const {
  check(cudaMemcpyAsync(detour.to, detour.from, detour.bytes, cudaMemcpyDeviceToDevice, stream_),
        "cudaMemcpyAsync");
}

}  // namespace ringtrain::compute::cuda
