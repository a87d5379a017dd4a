#pragma once
#include <iterator>

#include "ringtrain/compute/operation.hpp"
#include "support/catch.hpp"

namespace ringtrain {

/// Every activation, `none` too.
inline compute::Activation any_activation() {
  return static_cast<compute::Activation>(
      GENERATE(range(0, static_cast<int>(std::size(compute::activation_facts)))));
}

inline compute::Activation relu_if(bool relu) {
  return relu ? compute::Activation::relu : compute::Activation::none;
}

}  // namespace ringtrain
