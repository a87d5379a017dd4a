#include "compute/cuda/engines/fusion_operands.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <variant>

#include "compute/cuda/kernels/device/lanes.hpp"
#include "ringtrain/base/philox.hpp"

namespace ringtrain::compute::cuda {
namespace {

constexpr double zero_share = 0.1;
constexpr std::size_t guard = 256;  // bytes on both sides of an operand
constexpr std::size_t value_count = 1048573, gradient_count = 1048571, weight_count = 1048559,
                      vector_count = 8191;
constexpr float gradient_size = 1.f / 16;
constexpr int zero_channels = 8;  // of so many, one has gamma and beta 0

struct NameOf {
  std::size_t operator()(const TensorOperand& o) const { return o.id; }
  std::size_t operator()(const VectorOperand& o) const { return 2 * o.id + o.narrow; }
  std::size_t operator()(const ParameterOperand& o) const { return 2 * o.range.first + o.narrow; }
  std::size_t operator()(const OnesOperand& o) const { return o.count; }
  std::size_t operator()(const UnwantedOperand& o) const { return o.count; }
  std::size_t operator()(const auto& o) const { return o.range.first; }
};

DeviceBytes noise(Element element, std::size_t count, float size) {
  std::vector<float> numbers = normal_numbers(count, count);
  for (float& v : numbers) v *= size;
  const auto bytes = rounded(element, numbers);
  DeviceBytes noise(bytes.size());
  write_and_wait(noise.data(), bytes.data(), bytes.size());
  return noise;
}

}  // namespace

std::vector<float> normal_numbers(std::size_t count, std::uint64_t stream) {
  Philox random(stream, Purpose::initialise);
  std::vector<float> values(count);
  for (float& v : values)
    v = random.uniform() < zero_share ? 0.f : static_cast<float>(random.normal());
  return values;
}

std::vector<std::byte> rounded(Element element, const std::vector<float>& values) {
  std::vector<std::byte> bytes(values.size() * bytes_of(element));
  kernels::with_type(element, [&]<class T>(T) {
    T* to = reinterpret_cast<T*>(bytes.data());
    for (std::size_t i = 0; i < values.size(); ++i) to[i] = static_cast<T>(values[i]);
  });
  return bytes;
}

Noise make_noise(Element element) {
  return {noise(element, value_count, 1), noise(element, gradient_count, gradient_size),
          noise(element, weight_count, 1), noise(Element::fp32, vector_count, 1)};
}

void repeat(const DeviceBytes& noise, std::size_t first, std::byte* to, std::size_t bytes,
            cudaStream_t stream) {
  for (std::size_t done = 0; done < bytes;) {
    const std::size_t part = std::min(noise.size() - first, bytes - done);
    check(cudaMemcpyAsync(to + done, noise.data() + first, part, cudaMemcpyDeviceToDevice, stream),
          "cudaMemcpyAsync");
    done += part;
    first = 0;
  }
}

NormNumbers::NormNumbers(std::size_t channels, bool has_gamma, std::uint64_t stream)
    : gamma(normal_numbers(channels, 4 * stream)),
      beta(normal_numbers(channels, 4 * stream + 1)),
      mean(normal_numbers(channels, 4 * stream + 2)),
      inverse(normal_numbers(channels, 4 * stream + 3)),
      scale(channels),
      bias(channels) {
  for (std::size_t c = 0; c < channels; ++c) {
    inverse[c] = std::abs(inverse[c]) + 0.5f;
    if (c % zero_channels == 0) gamma[c] = beta[c] = 0;
    if (!has_gamma) gamma[c] = 1;
    scale[c] = gamma[c] * inverse[c];
    bias[c] = beta[c] - mean[c] * scale[c];
  }
}

std::size_t extent_of(const OperationGraph::Value& value) {
  const auto strides = value.strides();
  std::int64_t last = 0;
  for (std::size_t i = 0; i < strides.size(); ++i) last += (value.extents[i] - 1) * strides[i];
  return static_cast<std::size_t>(last + 1);
}

void* FusionOperands::at(const Operand& operand, const OperationGraph::Value& value) {
  const auto* vector = std::get_if<VectorOperand>(&operand);
  const std::size_t first = vector == nullptr ? 0 : static_cast<std::size_t>(vector->first);
  return make(operand, (first + extent_of(value)) * bytes_of(value.element)) +
         first * bytes_of(value.element);
}

void FusionOperands::set(const Operand& operand, Element element,
                         const std::vector<float>& values) {
  const std::vector<std::byte> bytes = rounded(element, values);
  write_and_wait(make(operand, bytes.size()), bytes.data(), bytes.size());
}

bool FusionOperands::guards_are_whole() const {
  std::array<std::byte, guard> bytes;
  for (const auto& [key, buffer] : all_)
    for (const std::byte* side : {buffer.data(), buffer.data() + buffer.size() - guard}) {
      read_and_wait(bytes.data(), side, guard);
      if (std::ranges::count(bytes, std::byte(0xff)) != std::ssize(bytes)) return false;
    }
  return true;
}

FusionOperands::Key FusionOperands::key_of(const Operand& operand) {
  return {operand.index(), std::visit(NameOf{}, operand)};
}

std::size_t FusionOperands::offset_of(const Operand& operand) const {
  const auto* tensor = std::get_if<TensorOperand>(&operand);
  return tensor == nullptr ? 0 : shapes_.place_of(tensor->id).first * bytes_of(element_);
}

std::size_t FusionOperands::whole(const Operand& operand) const {
  if (const auto* tensor = std::get_if<TensorOperand>(&operand))
    return shapes_.tensors[tensor->id].pixels() *
           shapes_.tensors[shapes_.place_of(tensor->id).of].channels * bytes_of(element_);
  if (const auto* vector = std::get_if<VectorOperand>(&operand))
    return shapes_.vectors[vector->id] * (vector->narrow ? bytes_of(element_) : sizeof(float));
  return 0;
}

std::byte* FusionOperands::make(const Operand& operand, std::size_t bytes) {
  const auto [place, is_new] = all_.try_emplace(key_of(operand));
  if (is_new) {
    place->second = DeviceBytes(std::max(bytes, whole(operand)) + 2 * guard);
    fill(place->second, operand);
  }
  return place->second.data() + guard + offset_of(operand);
}

const DeviceBytes& FusionOperands::noise_of(const Operand& operand) const {
  if (std::holds_alternative<WeightsOperand>(operand)) return noise_->weights;
  const auto* tensor = std::get_if<TensorOperand>(&operand);
  return tensor != nullptr && tensor->id == dy_ ? noise_->gradients : noise_->values;
}

void FusionOperands::fill(const DeviceBytes& buffer, const Operand& operand) const {
  if (noise_ == nullptr) {
    check(cudaMemsetAsync(buffer.data(), 0xff, buffer.size(), stream_), "cudaMemsetAsync");
    return;
  }
  const DeviceBytes& from = noise_of(operand);
  const std::size_t count = from.size() / bytes_of(element_);
  repeat(from, key_of(operand).second * 7919 % count * bytes_of(element_), buffer.data(),
         buffer.size(), stream_);
}

}  // namespace ringtrain::compute::cuda
