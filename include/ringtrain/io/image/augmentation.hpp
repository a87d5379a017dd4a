#pragma once
#include "ringtrain/io/image/image.hpp"

namespace ringtrain::io {

struct Interval {
  float low = 0, high = 0;
};

/// What training sees of an image. (Evaluation sees the same part every time.)
enum class Crop {
  none,            ///< what evaluation sees
  random,          ///< an output-sized window anywhere in the scaled image and its padding
  random_resized,  ///< a part of random area and aspect, stretched to the output
};

/// How a model wants its images. Every image reaches it with the extent `output`, and nothing is
/// drawn but from (seed, epoch, sample).
struct Augmentation {
  Extent output{32, 32};
  /// Before a window is cut (random or central), the image is scaled, keeping its aspect, so that
  /// it just covers this; {0, 0} means `output`.
  Extent cover{};

  Crop crop = Crop::none;
  int padding = 0;                    ///< Crop::random: black pixels added on each side
  Interval area{0.08f, 1};            ///< Crop::random_resized: fraction of the image's area
  Interval aspect{3.f / 4, 4.f / 3};  ///< ... and width / height, drawn evenly on a log scale
  bool mirror = false;                ///< left and right change places in half of the draws

  /// Ranges of Sample::jitter, which the device applies; these are neutral.
  Interval brightness{0, 0}, contrast{1, 1}, saturation{1, 1}, hue{0, 0};

  /// Evaluation: 0 cuts the central window of `output`; otherwise the central part with this
  /// fraction of each side is stretched to the output.
  float central_fraction = 0;

  /// The extent of images that need no scaling.
  Extent natural() const {
    if (crop == Crop::random_resized || cover == Extent{}) return output;
    return cover;
  }
};

}  // namespace ringtrain::io
