#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace ringtrain {

/// What a sample counts as: class `label` with `weight`, class `other` with the rest. A plain
/// sample, Target{label}, has the whole weight on its label. Mixup and CutMix make the others.
struct Target {
  std::int32_t label = -1;     ///< a class; -1 pads a last batch and counts for nothing
  std::int32_t other = label;  ///< a class wherever `label` is one, perhaps the same
  float weight = 1;            ///< 0..1

  /// The part of the sample that counts as class `c`.
  constexpr float share_of(int c) const {
    return (c == label ? weight : 0) + (c == other ? 1 - weight : 0);
  }
};

/// How one image's colours are changed before it is normalised, on the device: x -> (x +
/// brightness), then saturation, hue and contrast (around the image's mean). The neutral values
/// change nothing. Drawn by the loader from (seed, epoch, Sample::key()), so that every device
/// applies the same.
struct ColorJitter {
  float brightness = 0;  ///< added, in grey levels of 0..255
  float contrast = 1;    ///< factor around the channel's mean
  float saturation = 1;
  float hue = 0;  ///< turn of the colour circle, -0.5..0.5
};

/// A rectangle of an image that is filled with `value` once the image is normalised, on the device.
struct Erased {
  std::int32_t top = 0, left = 0, height = 0, width = 0;  ///< in pixels; height 0: nothing is
  float value = 0;

  constexpr bool covers(std::int64_t row, std::int64_t column) const {
    return row >= top && row - top < height && column >= left && column - left < width;
  }
};

/// All of a sample but its pixels.
struct Sample {
  /// Index in the data set and the epoch it is drawn in make "each sample once an epoch" checkable.
  std::uint64_t index = 0;
  std::uint32_t epoch = 0;
  Target target = {};
  ColorJitter jitter = {};
  std::uint32_t repeat = 0;  ///< how often it came before, where it may come again in an epoch
  Erased erased = {};

  /// With seed and epoch, keys what is random of this sample: each time it comes, another.
  constexpr std::uint64_t key() const { return index ^ std::uint64_t{repeat} << 40; }
};

/// One rank's input of one step, already cropped, resized and flipped.
struct Batch {
  int height = 0, width = 0, channels = 0;
  /// size() x height x width x channels, interleaved.
  std::vector<std::uint8_t> images;
  std::vector<Sample> samples;

  int size() const { return static_cast<int>(samples.size()); }
  std::size_t image_bytes() const { return std::size_t(height) * width * channels; }
  std::span<std::uint8_t> image(int place) {
    return std::span(images).subspan(place * image_bytes(), image_bytes());
  }
  /// Makes room for `count` samples and images of these extents; keeps memory that is there.
  void resize(int count, int image_height, int image_width, int image_channels) {
    height = image_height;
    width = image_width;
    channels = image_channels;
    samples.resize(count);
    images.resize(count * image_bytes());
  }
};

}  // namespace ringtrain
