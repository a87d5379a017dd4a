#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ringtrain/base/memory/view.hpp"

namespace ringtrain::allreduce {

/// The power of two by which `values` are multiplied before they are rounded to `element`, and
/// divided afterwards. For fp16, whose range is small: it brings the largest finite one to 2^14, so
/// that nothing overflows, and what is lost is below 2^-38 of the largest. The same before and
/// after rounding. 1 for bf16, which has the range of fp32.
float scale_for(Element element, std::span<const float> values);

/// rounded = scale * values, to the nearest, ties to even; NaN stays one. Both are equally long.
void narrow(Element element, float scale, std::span<const float> values, std::uint16_t* rounded);
/// values = rounded / scale, exactly.
void widen(Element element, float scale, const std::uint16_t* rounded, std::span<float> values);

/// The loops behind these, as compiled for one instruction set.
struct NarrowKernels {
  const char* name;
  std::uint32_t (*largest)(const float* values, std::size_t count);  ///< finite one's bits
  void (*narrow)(Element element, float scale, const float* values, std::uint16_t* rounded,
                 std::size_t count);
  void (*widen)(Element element, float factor, const std::uint16_t* rounded, float* values,
                std::size_t count);
};

/// Those that this CPU can run, the best first: all give the same bits.
std::vector<NarrowKernels> usable_narrow_kernels();

}  // namespace ringtrain::allreduce
