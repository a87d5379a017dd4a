#pragma once
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "compute/cuda/engines/operation_graph.hpp"
#include "compute/cuda/runtime/runtime.hpp"
#include "ringtrain/compute/step.hpp"

namespace ringtrain::compute::cuda {

/// Standard normal numbers, a tenth of them zeros, as a ReLU leaves them. The same every time.
std::vector<float> normal_numbers(std::size_t count, std::uint64_t stream);
/// As bytes of `element`.
std::vector<std::byte> rounded(Element element, const std::vector<float>& values);

/// Random numbers on the GPU, of which inputs are made. Each kind has a prime count of its own, so
/// that inputs, gradients and weights never repeat together. Gradients are small, because weight
/// gradients sum millions of products in 16 bits.
struct Noise {
  DeviceBytes values, gradients, weights;
  DeviceBytes vectors;  ///< fp32, whatever the element
};
Noise make_noise(Element element);
/// Queues copies of `noise`, one behind the other, to `bytes` of the GPU's memory at `to`. The
/// first of them starts at byte `first` of the noise. All memory stays until the stream is past
/// this.
void repeat(const DeviceBytes& noise, std::size_t first, std::byte* to, std::size_t bytes,
            cudaStream_t stream);

/// What the channels of a BatchNorm are multiplied with, and what follows from it. Of eight
/// channels one has gamma and beta 0.
struct NormNumbers {
  std::vector<float> gamma, beta, mean, inverse, scale, bias;
  /// `stream`: the same numbers for the same one.
  NormNumbers(std::size_t channels, bool has_gamma, std::uint64_t stream);
};

/// Elements of a value in memory, from its first to past its last.
std::size_t extent_of(const OperationGraph::Value& value);

/// What FusionCheck runs a step on: device memory of operands, by their names in the schedule, each
/// made when it is first asked for. All work is queued on one stream.
class FusionOperands {
 public:
  /// `noise`: what new memory is filled with, `dy` being a gradient; null: no numbers. All that is
  /// passed outlives this object.
  FusionOperands(const Schedule& shapes, Element element, cudaStream_t stream, const Noise* noise,
                 TensorId dy = no_tensor)
      : shapes_(shapes), element_(element), stream_(stream), noise_(noise), dy_(dy) {}

  bool has(const Operand& operand) const { return all_.contains(key_of(operand)); }
  /// Slices lie in their whole, as they do in training.
  void* at(const Operand& operand, const OperationGraph::Value& value);
  /// Null for no_tensor and no_vector.
  void* tensor(TensorId id) { return id == no_tensor ? nullptr : make(TensorOperand{id}, 0); }
  float* vector(VectorId id) {
    if (id == no_vector) return nullptr;
    return reinterpret_cast<float*>(make(VectorOperand{id}, 0));
  }
  float* floats(const Operand& operand, std::size_t count) {
    return reinterpret_cast<float*>(make(operand, count * sizeof(float)));
  }
  /// Waits.
  void set(const Operand& operand, Element element, const std::vector<float>& values);
  void set(const Operand& operand, const std::vector<float>& values) {
    set(operand, Element::fp32, values);
  }
  /// Whether nothing was written beside the operands, which were filled with no numbers. Waits.
  bool guards_are_whole() const;

 private:
  using Key = std::pair<std::size_t, std::size_t>;  // kind and name of an operand

  static Key key_of(const Operand& operand);
  std::size_t offset_of(const Operand& operand) const;
  std::size_t whole(const Operand& operand) const;
  std::byte* make(const Operand& operand, std::size_t bytes);
  const DeviceBytes& noise_of(const Operand& operand) const;
  void fill(const DeviceBytes& buffer, const Operand& operand) const;

  const Schedule& shapes_;
  const Element element_;
  const cudaStream_t stream_;
  const Noise* const noise_;
  const TensorId dy_;
  std::map<Key, DeviceBytes> all_;
};

}  // namespace ringtrain::compute::cuda
