#pragma once
#include <cstdint>
#include <vector>

#include "ringtrain/base/philox.hpp"
#include "support/activations.hpp"
#include "support/catch.hpp"
#include "support/kernel_case.hpp"

namespace ringtrain::compute {

inline Element any_element() { return GENERATE(Element::fp32, Element::fp16, Element::bf16); }
inline int any_channels() { return GENERATE(1, 3, 8, 17, 64); }

inline std::vector<float> random_floats(std::size_t count, std::uint64_t stream) {
  Philox random(stream, Purpose::initialise);
  std::vector<float> values(count);
  for (float& v : values) v = static_cast<float>(random.normal());
  return values;
}

/// The vectors of a BatchNorm; before a pool, without sums.
enum NormVectors : VectorId {
  sums,
  norm_scale,
  bias,
  mean,
  inverse,
  g_scale,
  x_scale,
  shift,
  last_vector
};

}  // namespace ringtrain::compute
