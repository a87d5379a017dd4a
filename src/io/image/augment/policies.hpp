#pragma once
#include <vector>

#include "io/image/augment/pixel_operations.hpp"
#include "ringtrain/base/philox.hpp"
#include "ringtrain/io/image/augmentation.hpp"

namespace ringtrain::io {

/// The operations that a policy draws for an image of this extent, in their order. How many numbers
/// it takes from `random` may depend on what it draws.
std::vector<PixelOperation> draw_operations(const TrivialAugmentWide& policy, Extent extent,
                                            Philox& random);
std::vector<PixelOperation> draw_operations(const RandAugment& policy, Extent extent,
                                            Philox& random);
std::vector<PixelOperation> draw_operations(const AutoAugment& policy, Extent extent,
                                            Philox& random);
std::vector<PixelOperation> draw_operations(const TimmRandAugment& policy, Extent extent,
                                            Philox& random);

/// What lies outside the image: black, but in timm's.
template <class Policy>
Colour outside_of(const Policy& policy) {
  if constexpr (requires { policy.outside; })
    return policy.outside;
  else
    return {0, 0, 0};
}

}  // namespace ringtrain::io
