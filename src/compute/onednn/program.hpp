#pragma once
#include <span>
#include <string>
#include <vector>

#include "compute/onednn/tensor.hpp"
#include "ringtrain/compute/backend.hpp"

namespace ringtrain::compute::onednn {

/// A schedule planned for this host's CPUs. What is not of Program is for tests and benchmarks.
class OnednnProgram : public Program {
 public:
  /// oneDNN's names of the kernels it chose, such as "jit:avx512_core"; "winograd", "depthwise",
  /// "grouped" and "amx" are ours.
  virtual const std::vector<std::string>& implementations() const = 0;
  /// How long each step of the schedule took in the last run().
  virtual std::span<const double> step_seconds() const = 0;
  /// A tensor's values in the order batch, height, width, channels. Steps share memory: a tensor is
  /// there only from its first to its last step.
  virtual void write(TensorId id, std::span<const float> values) = 0;
  virtual std::vector<float> read(TensorId id) const = 0;
  /// The lanes past the last channel are all zero.
  virtual bool padding_is_zero(TensorId id) const = 0;
};

}  // namespace ringtrain::compute::onednn
