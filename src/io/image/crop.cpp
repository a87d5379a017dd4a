#include "io/image/crop.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

namespace ringtrain::io {
namespace {

Box whole(Extent image) {
  return {0, 0, static_cast<double>(image.width), static_cast<double>(image.height)};
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

/// Scaled for a window of the output to be cut.
Extent scaled_for_window(const Augmentation& recipe, Extent image) {
  const Extent cover = recipe.cover == Extent{} ? recipe.output : recipe.cover;
  return covering(image, cover);
}

Box centred(Extent image, double height, double width) {
  return {(image.width - width) / 2, (image.height - height) / 2, width, height};
}

float draw(Philox& random, Interval interval) {
  return random.uniform(interval.low, interval.high);
}

/// Uniform in 0..last; 0 when there is no choice.
int draw_offset(Philox& random, int last) {
  return last > 0 ? static_cast<int>(random.below(static_cast<std::uint32_t>(last) + 1)) : 0;
}

CropTransform random_window(const Augmentation& recipe, Extent image, Philox& random) {
  CropTransform framing{whole(image), scaled_for_window(recipe, image)};
  const int pad = recipe.padding;
  const auto offset = [&](int side, int output) {
    return draw_offset(random, side + 2 * pad - output) - pad;
  };
  framing.top = offset(framing.scaled.height, recipe.output.height);
  framing.left = offset(framing.scaled.width, recipe.output.width);
  return framing;
}

// The published recipes try ten times and then take a central crop; so results compare.
Box random_part(const Augmentation& recipe, Extent image, Philox& random) {
  const Interval log_aspect{std::log(recipe.aspect.low), std::log(recipe.aspect.high)};
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double area = static_cast<double>(image.pixels()) * draw(random, recipe.area);
    const double aspect = std::exp(draw(random, log_aspect));
    const int width = static_cast<int>(std::lround(std::sqrt(area * aspect)));
    const int height = static_cast<int>(std::lround(std::sqrt(area / aspect)));
    if (width < 1 || height < 1 || width > image.width || height > image.height) continue;
    const int top = draw_offset(random, image.height - height);
    const int left = draw_offset(random, image.width - width);
    return {static_cast<double>(left), static_cast<double>(top), static_cast<double>(width),
            static_cast<double>(height)};
  }
  const double low = recipe.aspect.low, high = recipe.aspect.high;
  const double width = std::min<double>(image.width, image.height * high);
  const double height = std::min<double>(image.height, image.width / low);
  return centred(image, height, width);
}

/// Rows and columns of the output that show the scaled image; the others are black.
ScaledWindow shown_part(const CropTransform& framing, Extent output) {
  const int top = std::max(framing.top, 0), left = std::max(framing.left, 0);
  const int bottom = std::min(framing.top + output.height, framing.scaled.height);
  const int right = std::min(framing.left + output.width, framing.scaled.width);
  return {top, left, {std::max(bottom - top, 0), std::max(right - left, 0)}};
}

/// One axis of a framing: [start, start + length) of the image is scaled to `scaled`.
struct Side {
  double start, length;
  int scaled;
};

/// The first of the image's `size` pixels that outputs [begin, begin + count) are made of, with one
/// to spare, and how many there are.
std::pair<int, int> reach(const Side& side, int begin, int count, int size) {
  const double scale = side.length / side.scaled, around = std::max(scale, 1.0) + 1;
  const double first = side.start + begin * scale - around;
  const double end = side.start + (begin + count) * scale + around;
  const int from = std::clamp(static_cast<int>(std::floor(first)), 0, size - 1);
  return {from, std::clamp(static_cast<int>(std::ceil(end)), from + 1, size) - from};
}

bool is_whole(double value) { return value == std::floor(value); }

bool is_plain_copy(const CropTransform& framing, const Box& box) {
  return box.width == framing.scaled.width && box.height == framing.scaled.height &&
         is_whole(box.left) && is_whole(box.top);
}

void copy_row(const std::uint8_t* in, int width, bool mirrored, std::uint8_t* out) {
  if (!mirrored) {
    std::memcpy(out, in, std::size_t(width) * Image::channels);
    return;
  }
  for (int x = width - 1; x >= 0; --x)
    for (int c = 0; c < Image::channels; ++c) *out++ = in[x * Image::channels + c];
}

}  // namespace

CropTransform evaluation_framing(const Augmentation& recipe, Extent image) {
  if (recipe.central_fraction > 0) {
    const double fraction = recipe.central_fraction;
    return {centred(image, image.height * fraction, image.width * fraction), recipe.output};
  }
  const Extent scaled = scaled_for_window(recipe, image);
  return {whole(image), scaled, (scaled.height - recipe.output.height) / 2,
          (scaled.width - recipe.output.width) / 2};
}

CropTransform training_framing(const Augmentation& recipe, Extent image, Philox& random) {
  CropTransform framing;
  if (recipe.crop == Crop::none) framing = evaluation_framing(recipe, image);
  if (recipe.crop == Crop::random) framing = random_window(recipe, image, random);
  if (recipe.crop == Crop::random_resized)
    framing = {random_part(recipe, image, random), recipe.output};
  framing.mirrored = recipe.mirror && random.below(2) == 1;
  return framing;
}

ColorJitter draw_distortion(const Augmentation& recipe, Philox& random) {
  ColorJitter drawn;
  drawn.brightness = draw(random, recipe.brightness);
  drawn.contrast = draw(random, recipe.contrast);
  drawn.saturation = draw(random, recipe.saturation);
  drawn.hue = draw(random, recipe.hue);
  return drawn;
}

CropRequest need_of(const CropTransform& framing, Extent full, Extent output) {
  const ScaledWindow part = shown_part(framing, output);
  const auto [top, height] = reach({framing.box.top, framing.box.height, framing.scaled.height},
                                   part.top, part.extent.height, full.height);
  const auto [left, width] = reach({framing.box.left, framing.box.width, framing.scaled.width},
                                   part.left, part.extent.width, full.width);
  const double scale = std::min(framing.box.height / framing.scaled.height,
                                framing.box.width / framing.scaled.width);
  return {top, left, {height, width}, std::max(1, static_cast<int>(scale / 2))};
}

void Renderer::run(const PixelView& portion, const CropTransform& framing, Extent output,
                   std::uint8_t* out) {
  const ImageView& image = portion.pixels;
  const double by = portion.reduction;
  const Box box{framing.box.left / by - portion.left, framing.box.top / by - portion.top,
                framing.box.width / by, framing.box.height / by};
  const ScaledWindow part = shown_part(framing, output);
  const std::size_t stride = std::size_t(output.width) * Image::channels;
  if (part.extent != output) std::memset(out, 0, output.height * stride);

  const int left_edge = part.left - framing.left;
  const int column = framing.mirrored ? output.width - left_edge - part.extent.width : left_edge;
  std::uint8_t* first = out + (part.top - framing.top) * stride + column * Image::channels;
  if (!is_plain_copy(framing, box)) {
    resizer_.run(image, box, framing.scaled, part, framing.mirrored, first, stride);
    return;
  }
  for (int y = 0; y < part.extent.height; ++y) {
    const std::size_t source_y = static_cast<std::size_t>(box.top) + part.top + y;
    const std::size_t source_x = static_cast<std::size_t>(box.left) + part.left;
    copy_row(&image.pixels[(source_y * image.extent.width + source_x) * Image::channels],
             part.extent.width, framing.mirrored, first + y * stride);
  }
}

}  // namespace ringtrain::io
