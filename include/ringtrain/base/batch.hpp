#pragma once
#include <cstdint>
#include <vector>

namespace ringtrain {

/// How one image's colours are changed before it is normalised, on the device: x -> (x +
/// brightness), then saturation, hue and contrast (around the image's mean). The neutral values
/// change nothing. Drawn by the loader from (seed, epoch, sample), so that every device applies the
/// same.
struct ColorJitter {
  float brightness = 0;  ///< added, in grey levels of 0..255
  float contrast = 1;    ///< factor around the channel's mean
  float saturation = 1;
  float hue = 0;  ///< turn of the colour circle, -0.5..0.5
};

/// One rank's input of one step, already cropped, resized and flipped.
struct Batch {
  int height = 0, width = 0, channels = 0;
  /// samples x height x width x channels, interleaved.
  std::vector<std::uint8_t> images;
  /// A class, or -1: a place that pads a last batch and counts for nothing.
  std::vector<std::int32_t> labels;
  /// Index in the data set and the epoch it is drawn in: key dropout, and make "each sample once an
  /// epoch" checkable.
  std::vector<std::uint64_t> samples;
  std::vector<std::uint32_t> epochs;
  std::vector<ColorJitter> distortions;

  int size() const { return static_cast<int>(labels.size()); }
};

}  // namespace ringtrain
