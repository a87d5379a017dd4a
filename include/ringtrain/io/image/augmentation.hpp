#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <variant>
#include <vector>

#include "ringtrain/io/image/image.hpp"

namespace ringtrain::io {

struct Interval {
  float low = 0, high = 0;
};

// What may happen to a training image; the words are torchvision's. Crops and flips are part of
// cutting the image out of what is decoded. Colour jitter is drawn by the loader and applied by the
// device, in the Input step.

/// Cuts an output-sized window anywhere out of the scaled image and its padding.
struct RandomCrop {
  int padding = 0;         ///< pixels added on each side, at most half of the output's
  bool reflected = false;  ///< these are the image's, mirrored at its edge; else black
};
/// Stretches a part of random area and aspect to the output.
struct RandomResizedCrop {
  Interval area{0.08f, 1};            ///< fraction of the image's area
  Interval aspect{3.f / 4, 4.f / 3};  ///< width / height, drawn evenly on a log scale
};
/// Mirrors the image from left to right in half of the draws.
struct RandomHorizontalFlip {};
/// Mirrors the image from left to right in every second epoch: in the even ones for half of the
/// images, which the seed decides (Keller Jordan 2024, arXiv:2404.00498).
struct AlternatingFlip {};
/// Draws Sample::jitter.
struct RandomColorJitter {
  Interval brightness{0, 0}, contrast{1, 1}, saturation{1, 1}, hue{0, 0};
};

// Policies: they draw operations on the pixels that were cut out, whose bits are Pillow's.

/// One of 14 operations at one of 31 magnitudes: torchvision's TrivialAugmentWide.
struct TrivialAugmentWide {};
/// `count` of 14 operations at magnitude 0..30: torchvision's RandAugment.
struct RandAugment {
  int count = 2, magnitude = 9;
};
/// Two operations of one of 25 rows of a table, each with a probability: torchvision's AutoAugment.
struct AutoAugment {
  enum class Table { cifar10, imagenet } table = Table::imagenet;
};
/// `count` of 15 operations, each in half of the draws, at a normally distributed magnitude cut to
/// 0..10: timm's rand-m9-mstd0.5-inc1.
struct TimmRandAugment {
  int count = 2;
  double magnitude = 10, deviation = 0;
  Colour outside{128, 128, 128};  ///< where the image does not reach
};

/// Sets Sample::erased with this probability: a rectangle smaller than the image, of random area
/// and aspect. Where ten draws do not fit, nothing. With a colour the pixels get that instead.
struct RandomErasing {
  double probability = 0;
  Interval area{0.02f, 0.33f};  ///< fraction of the image's area
  Interval aspect{0.3f, 3.3f};  ///< height / width
  bool even_aspect = false;     ///< drawn evenly, not evenly on a log scale
  float value = 0;              ///< of the normalised image
  std::optional<Colour> colour = {};
};
/// Likewise erases a square around a random pixel, as far as it lies in the image (DeVries and
/// Taylor 2017), or one that lies in it wholly.
struct Cutout {
  int size = 8;
  bool inside = false;
  std::optional<Colour> colour = {};
};

using AugmentationOperation =
    std::variant<RandomCrop, RandomResizedCrop, RandomHorizontalFlip, AlternatingFlip,
                 RandomColorJitter, TrivialAugmentWide, RandAugment, AutoAugment, TimmRandAugment,
                 RandomErasing, Cutout>;

/// How pairs of images, the neighbours of a step, become mixtures, and their labels with them:
/// mixup (Zhang et al. 2018) and CutMix (Yun et al. 2019), with torchvision's boxes. A part is
/// drawn from Beta(alpha, alpha); pixels are rounded to 8 bits, as timm's FastCollateMixup does.
struct Mixing {
  double mixup = 0, cutmix = 0;  ///< alpha; 0: never
  double probability = 1;        ///< of a pair to be mixed
  double cutmix_share = 0.5;     ///< of CutMix where there is mixup, too
  bool by_step = false;          ///< all pairs of a step are mixed alike; else each draws

  bool mixes() const { return mixup > 0 || cutmix > 0; }
};

/// The policy of a name: ta_wide, ra, ra-n2-m9, cifar10, imagenet, rand-m9-mstd0.5-inc1; nothing
/// of `none`. Throws BadValue.
std::optional<AugmentationOperation> parse_policy(std::string_view name);

/// How a model wants its images. Every image reaches it with the extent `output`, and nothing is
/// drawn but from (seed, epoch, sample), or from a step for what mixes images.
struct Augmentation {
  Extent output{32, 32};
  /// Before a window is cut (random or central), the image is scaled, keeping its aspect, so that
  /// it just covers this; {0, 0} means `output`.
  Extent cover{};
  /// Evaluation: 0 cuts the central window of `output`; otherwise the central part with this
  /// fraction of each side is stretched to the output.
  float central_fraction = 0;
  /// Where it is not 0, in place of `cover`: the shorter side is scaled to this, and the central
  /// window is cut, with torchvision's rounding. What the image does not reach is black.
  int shorter_side = 0;
  Interpolation interpolation = Interpolation::bilinear;
  /// Training: what happens to an image, in this order. Without a crop it is cut as in evaluation.
  std::vector<AugmentationOperation> operations = {};
  Mixing mixing = {};  ///< training
  /// Training: so often each image that an epoch has comes in it, and so many times fewer of them
  /// come (Hoffer et al. 2019, arXiv:1901.09335).
  int repeats = 1;

  /// The first operation of a kind; null where there is none.
  template <class Operation>
  const Operation* find() const {
    for (const AugmentationOperation& operation : operations)
      if (const auto* found = std::get_if<Operation>(&operation)) return found;
    return nullptr;
  }
  /// The extent of images that need no scaling.
  Extent natural() const {
    return cover == Extent{} || find<RandomResizedCrop>() != nullptr ? output : cover;
  }
};

}  // namespace ringtrain::io
