// Any bytes as an image: opened, cropped, decoded and scaled, or refused with Undecodable.
#include "io/image/crop.hpp"
#include "io/image/decoder.hpp"

using namespace ringtrain;

namespace {

constexpr std::uint64_t max_pixels = 1 << 18;
constexpr io::Extent output{24, 20};

/// The input decides about the crop, too: its length keys what is drawn.
io::CropTransform framing_for(std::size_t size, io::Extent full) {
  const io::Crop crop = size % 4 == 0 ? io::Crop::none : io::Crop::random_resized;
  const io::Augmentation recipe{
      .output = output, .crop = crop, .mirror = true, .central_fraction = 0.875f};
  Philox random(size, Purpose::augment);
  return io::training_framing(recipe, full, random);
}

void load(std::span<const std::uint8_t> bytes) {
  const auto decoder = io::make_image_decoder(max_pixels);
  io::Image image;
  std::vector<std::uint8_t> result(output.pixels() * io::Image::channels);
  const io::Extent full = decoder->open(bytes);
  const io::CropTransform framing = framing_for(bytes.size(), full);
  const io::PixelView pixels = decoder->pixels(io::need_of(framing, full, output), image);
  io::Renderer().run(pixels, framing, output, result.data());
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
