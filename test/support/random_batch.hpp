#pragma once
#include "ringtrain/base/batch.hpp"
#include "ringtrain/base/philox.hpp"
#include "ringtrain/compute/step.hpp"

namespace ringtrain {

/// `size` random images with labels and mild jitter, the same for the same seed.
inline Batch random_batch(int size, int height, int width, int channels, int classes,
                          std::uint64_t seed = 1) {
  Batch batch;
  batch.resize(size, height, width, channels);
  Philox random(seed, Purpose::synthetic);
  for (auto& v : batch.images) v = static_cast<std::uint8_t>(random.below(256));
  for (std::uint64_t index = 100; Sample & sample : batch.samples) {
    sample = {index++, 1, {static_cast<std::int32_t>(random.below(classes))}};
    sample.jitter.brightness = random.uniform(-20, 20);
    sample.jitter.contrast = random.uniform(0.5f, 1.5f);
  }
  return batch;
}

/// A batch for the given input tensor.
inline Batch random_batch(const compute::Shape& x, int classes = 10) {
  return random_batch(x.batch, x.height, x.width, x.channels, classes);
}

/// Sets the targets of a batch's samples, in order.
inline void set_targets(Batch& batch, const std::vector<Target>& targets) {
  batch.samples.resize(targets.size());
  for (std::size_t n = 0; n < targets.size(); ++n) batch.samples[n].target = targets[n];
}
/// Sets how the colours of a batch's samples are changed, in order.
inline void set_jitter(Batch& batch, const std::vector<ColorJitter>& jitter) {
  batch.samples.resize(jitter.size());
  for (std::size_t n = 0; n < jitter.size(); ++n) batch.samples[n].jitter = jitter[n];
}
/// Sets the rectangles that are erased from a batch's samples, in order.
inline void set_erased(Batch& batch, const std::vector<Erased>& erased) {
  batch.samples.resize(erased.size());
  for (std::size_t n = 0; n < erased.size(); ++n) batch.samples[n].erased = erased[n];
}

}  // namespace ringtrain
