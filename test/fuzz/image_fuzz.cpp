// Any bytes as an image: opened, cropped, decoded and scaled, or refused with Undecodable.
#include "io/image/augmented_image.hpp"
#include "io/image/decoder.hpp"

using namespace ringtrain;

namespace {

constexpr std::uint64_t max_pixels = 1 << 18;
constexpr io::Extent output{24, 20};

/// The input decides about the crop, too: its length keys what is drawn.
io::CropTransform crop_for(std::size_t size, io::Extent full) {
  io::Augmentation recipe{.output = output, .central_fraction = 0.875f};
  if (size % 4 != 0) recipe.operations = {io::RandomResizedCrop{}};
  recipe.operations.push_back(io::RandomHorizontalFlip{});
  Philox random(size, Purpose::augment);
  io::AugmentedImage image(recipe, full);
  io::PixelOperator pixels;
  augment(image, random, pixels);
  return image.crop();
}

void load(std::span<const std::uint8_t> bytes) {
  const auto decoder = io::make_image_decoder(max_pixels);
  io::Image image;
  std::vector<std::uint8_t> result(output.pixels() * io::Image::channels);
  const io::Extent full = decoder->open(bytes);
  const io::CropTransform crop = crop_for(bytes.size(), full);
  io::CropRequest need = io::request_for(crop, full, output);
  need.alpha = bytes.size() % 2 == 0;
  io::PixelView pixels = decoder->pixels(need, image);
  io::Renderer().run(pixels, crop, output, result.data());
  if (pixels.alpha.pixels.empty()) return;
  pixels.pixels = pixels.alpha;
  io::Renderer().run(pixels, crop, output, result.data());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  try {
    load({bytes, size});
  } catch (const io::Undecodable&) {
    return 0;
  }
  return 0;
}
