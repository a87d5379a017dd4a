#pragma once
#include "ringtrain/base/batch.hpp"

namespace ringtrain {

/// Samples [first, first + count) of `whole`.
inline Batch part_of_batch(const Batch& whole, int first, int count) {
  Batch part = whole;
  const auto cut = [&](auto& values, std::size_t each) {
    values = {values.begin() + std::ptrdiff_t(first * each),
              values.begin() + std::ptrdiff_t((first + count) * each)};
  };
  cut(part.images, whole.image_bytes());
  cut(part.samples, 1);
  return part;
}

}  // namespace ringtrain
