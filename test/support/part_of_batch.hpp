#pragma once
#include "ringtrain/base/batch.hpp"

namespace ringtrain {

/// Samples [first, first + count) of `whole`.
inline Batch part_of_batch(const Batch& whole, int first, int count) {
  Batch part = whole;
  const std::size_t image = whole.images.size() / whole.labels.size();
  const auto cut = [&](auto& values, std::size_t each) {
    values = {values.begin() + std::ptrdiff_t(first * each),
              values.begin() + std::ptrdiff_t((first + count) * each)};
  };
  cut(part.images, image);
  cut(part.labels, 1);
  cut(part.samples, 1);
  cut(part.epochs, 1);
  cut(part.distortions, 1);
  return part;
}

}  // namespace ringtrain
