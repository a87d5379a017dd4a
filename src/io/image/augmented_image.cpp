#include "io/image/augmented_image.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "io/image/augment/policies.hpp"

namespace ringtrain::io {
namespace {

Box whole(Extent image) {
  return {0, 0, static_cast<double>(image.width), static_cast<double>(image.height)};
}

Box centred(Extent image, double height, double width) {
  return {(image.width - width) / 2, (image.height - height) / 2, width, height};
}

/// The extent of `image` scaled so that it just covers `wanted`.
Extent covering(Extent image, Extent wanted) {
  const double scale = std::max(static_cast<double>(wanted.height) / image.height,
                                static_cast<double>(wanted.width) / image.width);
  const auto scaled = [&](int side, int least) {
    return std::max(least, static_cast<int>(std::lround(side * scale)));
  };
  return {scaled(image.height, wanted.height), scaled(image.width, wanted.width)};
}

/// `image` scaled so that its shorter side is `wanted`; the other is rounded down.
Extent with_shorter_side(Extent image, int wanted) {
  const auto longer = [&](int side, int shorter) {
    return static_cast<int>(std::int64_t{wanted} * side / shorter);
  };
  if (image.height <= image.width) return {wanted, longer(image.width, image.height)};
  return {longer(image.height, image.width), wanted};
}

/// Half of it, rounded to even.
int half_of(int difference) { return static_cast<int>(std::nearbyint(difference / 2.0)); }

/// The extent to which an image is scaled for a window of the output to be cut.
Extent scaled_for_window(const Augmentation& recipe, Extent image) {
  if (recipe.shorter_side > 0) return with_shorter_side(image, recipe.shorter_side);
  return covering(image, recipe.cover == Extent{} ? recipe.output : recipe.cover);
}

CropTransform evaluation_crop(const Augmentation& recipe, Extent image) {
  if (recipe.central_fraction > 0) {
    const double fraction = recipe.central_fraction;
    return {centred(image, image.height * fraction, image.width * fraction),
            recipe.output,
            0,
            0,
            false,
            recipe.interpolation};
  }
  const Extent scaled = scaled_for_window(recipe, image);
  const int down = scaled.height - recipe.output.height,
            across = scaled.width - recipe.output.width;
  const bool as_torchvision = recipe.shorter_side > 0;
  return {whole(image),
          scaled,
          as_torchvision ? half_of(down) : down / 2,
          as_torchvision ? half_of(across) : across / 2,
          false,
          recipe.interpolation};
}

float draw(Philox& random, Interval interval) {
  return random.uniform(interval.low, interval.high);
}

/// Uniform in 0..last; 0 when there is no choice.
int draw_offset(Philox& random, int last) {
  return last > 0 ? static_cast<int>(random.below(static_cast<std::uint32_t>(last) + 1)) : 0;
}

// The published recipes try ten times and then take a central crop; so results compare.
Box draw_box(const RandomResizedCrop& o, Extent image, Philox& random) {
  const Interval log_aspect{std::log(o.aspect.low), std::log(o.aspect.high)};
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double area = static_cast<double>(image.pixels()) * draw(random, o.area);
    const double aspect = std::exp(draw(random, log_aspect));
    const int width = static_cast<int>(std::lround(std::sqrt(area * aspect)));
    const int height = static_cast<int>(std::lround(std::sqrt(area / aspect)));
    if (width < 1 || height < 1 || width > image.width || height > image.height) continue;
    const int top = draw_offset(random, image.height - height);
    const int left = draw_offset(random, image.width - width);
    return {static_cast<double>(left), static_cast<double>(top), static_cast<double>(width),
            static_cast<double>(height)};
  }
  const double low = o.aspect.low, high = o.aspect.high;
  const double width = std::min<double>(image.width, image.height * high);
  const double height = std::min<double>(image.height, image.width / low);
  return centred(image, height, width);
}

// An operation of a new kind is one more function here, and a word of the recipe. It changes
// image.crop(), image.pixels(), image.jitter or image.erased.

void apply(const RandomCrop& o, AugmentedImage& image, Philox& random, PixelOperator&) {
  const Extent scaled = scaled_for_window(image.recipe, image.full), output = image.recipe.output;
  const auto offset = [&](int side, int shown) {
    return draw_offset(random, side + 2 * o.padding - shown) - o.padding;
  };
  const int top = offset(scaled.height, output.height);
  const int left = offset(scaled.width, output.width);
  image.crop() = {whole(image.full),          scaled,     top, left, image.crop().mirrored,
                  image.recipe.interpolation, o.reflected};
}

void apply(const RandomResizedCrop& o, AugmentedImage& image, Philox& random, PixelOperator&) {
  const Box box = draw_box(o, image.full, random);
  image.crop() = {box, image.recipe.output,   0,
                  0,   image.crop().mirrored, image.recipe.interpolation};
}

void apply(const RandomHorizontalFlip&, AugmentedImage& image, Philox& random, PixelOperator&) {
  if (random.below(2) == 1) image.crop().mirrored = !image.crop().mirrored;
}

void apply(const AlternatingFlip&, AugmentedImage& image, Philox&, PixelOperator&) {
  if (image.alternates) image.crop().mirrored = !image.crop().mirrored;
}

void apply(const RandomColorJitter& o, AugmentedImage& image, Philox& random, PixelOperator&) {
  image.jitter.brightness = draw(random, o.brightness);
  image.jitter.contrast = draw(random, o.contrast);
  image.jitter.saturation = draw(random, o.saturation);
  image.jitter.hue = draw(random, o.hue);
}

int rounded(double side) { return static_cast<int>(std::nearbyint(side)); }

/// Nothing where it does not fit.
Erased draw_rectangle(const RandomErasing& o, Extent image, Philox& random) {
  const double area = static_cast<double>(image.pixels()) * draw(random, o.area);
  const double aspect =
      o.even_aspect ? draw(random, o.aspect)
                    : std::exp(draw(random, {std::log(o.aspect.low), std::log(o.aspect.high)}));
  const int height = rounded(std::sqrt(area * aspect)), width = rounded(std::sqrt(area / aspect));
  if (height < 1 || width < 1 || height >= image.height || width >= image.width) return {};
  const int top = draw_offset(random, image.height - height);
  return {top, draw_offset(random, image.width - width), height, width, o.value};
}

// On the device, or here with a colour.
void erase(const Erased& erased, const std::optional<Colour>& colour, AugmentedImage& image) {
  if (!colour) {
    image.erased = erased;
    return;
  }
  for (int row = 0; row < erased.height; ++row)
    for (int column = 0; column < erased.width; ++column) {
      const std::size_t pixel =
          std::size_t(erased.top + row) * image.recipe.output.width + erased.left + column;
      std::ranges::copy(*colour, image.pixels().begin() + pixel * Image::channels);
    }
}

void apply(const RandomErasing& o, AugmentedImage& image, Philox& random, PixelOperator&) {
  if (random.uniform() >= o.probability) return;
  Erased erased;
  for (int attempt = 0; attempt < 10 && erased.height == 0; ++attempt)
    erased = draw_rectangle(o, image.recipe.output, random);
  erase(erased, o.colour, image);
}

void apply(const Cutout& o, AugmentedImage& image, Philox& random, PixelOperator&) {
  const Extent all = image.recipe.output;
  const auto side = [&](int length) {  // first and end
    if (o.inside) {
      const int first = draw_offset(random, length - o.size);
      return std::pair(first, std::min(first + o.size, length));
    }
    const int first = draw_offset(random, length - 1) - o.size / 2;
    return std::pair(std::max(first, 0), std::min(first + o.size, length));
  };
  const auto [top, bottom] = side(all.height);
  const auto [left, right] = side(all.width);
  erase({top, left, bottom - top, right - left, 0}, o.colour, image);
}

template <class Policy>
void apply(const Policy& policy, AugmentedImage& image, Philox& random, PixelOperator& pixels) {
  const Extent extent = image.recipe.output;
  const Resampling resampling{image.recipe.interpolation, outside_of(policy)};
  for (const PixelOperation& operation : draw_operations(policy, extent, random))
    pixels.run(operation, resampling, {extent, image.pixels()});
}

}  // namespace

AugmentedImage::AugmentedImage(const Augmentation& augmentation, Extent stored, Render render)
    : recipe(augmentation),
      full(stored),
      crop_(evaluation_crop(augmentation, stored)),
      render_(std::move(render)) {}

void augment(AugmentedImage& image, Philox& random, PixelOperator& pixels) {
  for (const AugmentationOperation& operation : image.recipe.operations)
    std::visit([&](const auto& o) { apply(o, image, random, pixels); }, operation);
}

}  // namespace ringtrain::io
