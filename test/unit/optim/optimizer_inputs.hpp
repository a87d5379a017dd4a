#pragma once
#include <cstddef>

#include "ringtrain/base/philox.hpp"

namespace ringtrain::optim {

inline constexpr double gradient_scale = 0.25, weight_decay = 0.01;

inline float gradient_of(std::size_t i, int step) {
  return Philox(3, Purpose::synthetic, static_cast<std::uint32_t>(step), i).uniform(-2, 2);
}

}  // namespace ringtrain::optim
