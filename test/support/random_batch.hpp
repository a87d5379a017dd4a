#pragma once
#include "ringtrain/base/batch.hpp"
#include "ringtrain/base/philox.hpp"
#include "ringtrain/compute/step.hpp"

namespace ringtrain {

/// `size` random images with labels and mild distortions, the same for the same seed.
inline Batch random_batch(int size, int height, int width, int channels, int classes,
                          std::uint64_t seed = 1) {
  Batch batch;
  batch.height = height;
  batch.width = width;
  batch.channels = channels;
  Philox random(seed, Purpose::synthetic);
  batch.images.resize(std::size_t(size) * height * width * channels);
  for (auto& v : batch.images) v = static_cast<std::uint8_t>(random.below(256));
  for (int n = 0; n < size; ++n) {
    batch.labels.push_back(static_cast<std::int32_t>(random.below(classes)));
    batch.samples.push_back(100 + n);
    batch.epochs.push_back(1);
    batch.distortions.push_back({random.uniform(-20, 20), random.uniform(0.5f, 1.5f)});
  }
  return batch;
}

/// A batch for the given input tensor.
inline Batch random_batch(const compute::Shape& x, int classes = 10) {
  return random_batch(x.batch, x.height, x.width, x.channels, classes);
}

}  // namespace ringtrain
