#pragma once
#include <cstddef>
#include <cstdint>

#include "ringtrain/base/memory/view.hpp"

namespace ringtrain::compute {

/// Logical extents of an activation, batch x height x width x channels; how a backend lays it out
/// is its own affair. A matrix has height = width = 1.
struct Shape {
  int batch = 0, height = 1, width = 1, channels = 0;
  std::size_t pixels() const { return std::size_t(batch) * height * width; }
  /// Elements of one sample.
  std::size_t features() const { return std::size_t(height) * width * channels; }
  std::size_t elements() const { return batch * features(); }
  friend bool operator==(const Shape&, const Shape&) = default;
};

/// Index into Schedule::tensors.
using TensorId = std::int32_t;
/// Where a step wants no tensor (an optional fusion that is not made).
inline constexpr TensorId no_tensor = -1;
/// Index into Schedule::vectors: per-channel fp32 numbers that a step leaves for later steps of the
/// same pass over the schedule. They have memory of their own, never planned.
using VectorId = std::int32_t;
inline constexpr VectorId no_vector = -1;
/// A range of the flat parameter buffer and, equally, of the flat gradient buffer.
using ParameterRange = Range;
/// A range of the flat buffer of BatchNorm statistics.
using StatisticsRange = Range;

enum class Access { read, write };

/// A sliding window: kernel, stride, and explicit padding on each side, in pixels.
struct Window {
  int height = 1, width = 1, stride_y = 1, stride_x = 1;
  int top = 0, left = 0, bottom = 0, right = 0;
  friend bool operator==(const Window&, const Window&) = default;
};

}  // namespace ringtrain::compute
