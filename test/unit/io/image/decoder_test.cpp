#include "io/image/decoder.hpp"

#include <algorithm>
#include <array>
#include <string>

#include "ringtrain/base/philox.hpp"
#include "support/catch.hpp"
#include "unit/io/dataset/data_support.hpp"

using namespace ringtrain;
using namespace ringtrain::io;
using namespace ringtrain::test;
using Catch::Contains;

namespace {

constexpr std::uint64_t plenty = 1 << 20;

Image decoded(std::span<const std::uint8_t> bytes, int reduction = 1) {
  const auto decoder = make_image_decoder(plenty);
  const Extent extent = decoder->open(bytes);
  Image image;
  decoder->pixels({.extent = extent, .reduction = reduction}, image);
  return image;
}

/// Why the bytes are undecodable; empty when they are not.
std::string decoding_complaint(std::span<const std::uint8_t> bytes) {
  try {
    decoded(bytes);
  } catch (const Undecodable& failure) {
    return failure.what();
  }
  return "";
}

/// `image` with its red in all channels.
Image red_as_grey(Image image) {
  for (std::size_t i = 0; i < image.pixels.size(); ++i)
    image.pixels[i] = image.pixels[i - i % Image::channels];
  return image;
}

/// Values that follow no rule, in which every block and column differs.
Image noisy_image(Extent extent) {
  Image image = gradient_image(extent);
  Philox random(7, Purpose::synthetic);
  for (auto& value : image.pixels) value = static_cast<std::uint8_t>(value / 2 + random.below(100));
  return image;
}

CropRequest random_need(Extent full, int reduction, Philox& random) {
  const auto below = [&](int bound) { return static_cast<int>(random.below(bound)); };
  const int top = below(full.height), left = below(full.width);
  return {top, left, {1 + below(full.height - top), 1 + below(full.width - left)}, reduction};
}

/// Halves, corners and strips at all edges, and some anywhere.
std::vector<CropRequest> needs_of(Extent full, int reduction, int random_ones) {
  const int h = full.height, w = full.width;
  std::vector<CropRequest> needs;
  for (const auto& [top, height] : {std::pair(0, h), {0, h / 2}, {h / 2, h - h / 2}, {h - 1, 1}})
    for (const auto& [left, width] : {std::pair(0, w), {0, w / 2}, {w / 2, w - w / 2}, {w - 1, 1}})
      needs.push_back({top, left, {height, width}, reduction});
  Philox random(1, Purpose::synthetic);
  for (int i = 0; i < random_ones; ++i) needs.push_back(random_need(full, reduction, random));
  return needs;
}

/// How many of the needed values the part lacks or has otherwise than the whole, reduced alike.
int differences(const PixelView& part, const CropRequest& need, const Image& whole) {
  const int by = part.reduction, bottom = need.top + need.extent.height;
  const Extent got = part.pixels.extent;
  int wrong = 0;
  for (int y = need.top / by; y * by < bottom; ++y)
    for (int x = need.left / by; x * by < need.left + need.extent.width; ++x) {
      const int row = y - part.top, column = x - part.left;
      if (row < 0 || row >= got.height || column < 0 || column >= got.width) return 1 << 30;
      for (int c = 0; c < Image::channels; ++c)
        wrong += part.pixels.pixels[(row * got.width + column) * 3 + c] !=
                 whole.pixels[(y * whole.extent.width + x) * 3 + c];
    }
  return wrong;
}

/// How many parts of a JPEG of extent `full` are not, to the bit, those of the whole.
int wrong_parts(const Bytes& bytes, Extent full, int reduction, int random_ones) {
  const Image whole = decoded(bytes, reduction);
  const auto decoder = make_image_decoder(plenty);
  Image image;
  int wrong = 0;
  for (const CropRequest& need : needs_of(full, reduction, random_ones)) {
    decoder->open(bytes);
    wrong += differences(decoder->pixels(need, image), need, whole) > 0;
  }
  return wrong;
}

/// Where the frame header begins: a marker, its length, bits a value, height, width.
std::size_t frame_header(const Bytes& baseline_jpeg) {
  const std::array<std::uint8_t, 2> marker{0xFF, 0xC0};
  const auto at = std::ranges::search(baseline_jpeg, marker).begin();
  REQUIRE(at != baseline_jpeg.end());
  return static_cast<std::size_t>(at - baseline_jpeg.begin());
}

const Image picture = gradient_image({37, 53});

}  // namespace

TEST_CASE("decode: JPEG of every colour space comes close to what was encoded") {
  const auto kind = GENERATE(JpegKind::rgb, JpegKind::progressive, JpegKind::arithmetic,
                             JpegKind::cmyk, JpegKind::ycck);
  CAPTURE(static_cast<int>(kind));

  const Image image = decoded(encode_jpeg(picture, kind));

  CHECK(largest_difference(image.view(), picture.view()) < 12);
}

TEST_CASE("decode: CMYK without Adobe's mark is not inverted") {
  Bytes bytes = encode_jpeg(picture, JpegKind::cmyk, 100);
  const std::string_view mark = "Adobe";
  const auto at = std::search(bytes.begin(), bytes.end(), mark.begin(), mark.end());
  REQUIRE(at != bytes.end());
  *at = 'X';

  const Image image = decoded(bytes);

  // Black is 255, full ink.
  CHECK(std::ranges::all_of(image.pixels, [](int value) { return value <= 1; }));
}

TEST_CASE("decode: grey becomes three equal channels") {
  const Image grey = red_as_grey(picture);

  CHECK(largest_difference(decoded(encode_jpeg(picture, JpegKind::grey)).view(), grey.view()) < 5);
  CHECK(decoded(encode_png(picture, PngKind::grey)).pixels == grey.pixels);
  CHECK(decoded(encode_png(picture, PngKind::grey_16)).pixels == grey.pixels);
}

TEST_CASE("decode: PNG of every kind is exact, and alpha is dropped") {
  const auto kind =
      GENERATE(PngKind::rgb, PngKind::rgb_16, PngKind::rgb_alpha, PngKind::interlaced);
  CAPTURE(static_cast<int>(kind));

  CHECK(decoded(encode_png(picture, kind)).pixels == picture.pixels);
}

TEST_CASE("decode: PNG palettes and single bits become colours") {
  const Image coloured = decoded(encode_png(picture, PngKind::palette));
  const Image bits = decoded(encode_png(picture, PngKind::grey_1));

  for (std::size_t i = 0; i < picture.pixels.size(); i += 3) {
    const std::uint8_t red = picture.pixels[i];
    REQUIRE(coloured.pixels[i] == red);
    REQUIRE(coloured.pixels[i + 1] == 255 - red);
    REQUIRE(coloured.pixels[i + 2] == 7);
    REQUIRE(bits.pixels[i] == (red >= 128 ? 255 : 0));
  }
}

TEST_CASE("decode: a JPEG is reduced by the largest power of two that is allowed") {
  const Bytes bytes = encode_jpeg(gradient_image({100, 203}));

  CHECK(decoded(bytes, 1).extent == Extent{100, 203});
  CHECK(decoded(bytes, 2).extent == Extent{50, 102});
  CHECK(decoded(bytes, 3).extent == Extent{50, 102});
  CHECK(decoded(bytes, 7).extent == Extent{25, 51});
  CHECK(decoded(bytes, 100).extent == Extent{13, 26});
}

TEST_CASE("decode: a part of a JPEG is, to the bit, that part of the whole") {
  const auto kind = GENERATE(JpegKind::rgb, JpegKind::progressive, JpegKind::coarse, JpegKind::grey,
                             JpegKind::cmyk);
  const int reduction = GENERATE(1, 2, 4, 8);
  CAPTURE(static_cast<int>(kind), reduction);
  const Bytes bytes = encode_jpeg(noisy_image({97, 203}), kind, 90);

  CHECK(wrong_parts(bytes, {97, 203}, reduction, 60) == 0);
}

TEST_CASE("decode: a part of a JPEG of any sampling is, to the bit, that part of the whole") {
  using Factors = std::vector<Sampling>;
  const auto factors = GENERATE(values<Factors>({
      {{1, 1}, {1, 1}, {1, 1}},  // 4:4:4
      {{2, 1}, {1, 1}, {1, 1}},  // 4:2:2
      {{1, 2}, {1, 1}, {1, 1}},  // 4:4:0
      {{4, 1}, {1, 1}, {1, 1}},  // 4:1:1
      {{1, 4}, {1, 1}, {1, 1}},
      {{4, 2}, {1, 1}, {1, 1}},  // 4:1:0
      {{2, 4}, {1, 1}, {1, 1}},
      {{3, 1}, {1, 1}, {1, 1}},
      {{3, 2}, {1, 1}, {1, 1}},
      {{1, 3}, {1, 3}, {1, 1}},
      {{2, 2}, {2, 1}, {1, 2}},
      {{1, 4}, {2, 1}, {1, 1}},
      {{1, 1}, {2, 2}, {2, 2}},  // chroma larger than luma
      {{1, 1}, {4, 1}, {2, 2}},
      {{1, 1}, {1, 4}, {4, 1}},
  }));
  const auto kind = GENERATE(JpegKind::rgb, JpegKind::progressive, JpegKind::coarse);
  const int reduction = GENERATE(1, 2, 4, 8);
  CAPTURE(factors.front().across, factors.front().down, static_cast<int>(kind), reduction);
  const Bytes bytes = encode_jpeg(noisy_image({61, 139}), kind, 90, factors);

  CHECK(wrong_parts(bytes, {61, 139}, reduction, 8) == 0);
}

TEST_CASE("decode: a decoder goes on after damaged images, with the same result") {
  const Bytes good_jpeg = encode_jpeg(picture), good_png = encode_png(picture);
  const auto decoder = make_image_decoder(plenty);
  Image image;

  for (const Bytes& good : {good_jpeg, good_png}) {
    const auto cut = std::span(good).first(good.size() / 2);
    CHECK_THROWS_AS((decoder->open(cut), decoder->pixels({.extent = picture.extent}, image)),
                    Undecodable);
    decoder->open(good);
    decoder->pixels({.extent = picture.extent}, image);
    CHECK(image.pixels == decoded(good).pixels);
  }
}

TEST_CASE("decode: an image cut anywhere is undecodable") {
  const auto bytes = GENERATE(encode_jpeg(picture), encode_jpeg(picture, JpegKind::progressive),
                              encode_jpeg(picture, JpegKind::cmyk), encode_png(picture),
                              encode_png(picture, PngKind::interlaced));
  for (std::size_t part = 0; part < 16; ++part) {
    CAPTURE(part);
    CHECK(decoding_complaint(std::span(bytes).first((bytes.size() - 12) * part / 16)) != "");
  }
  CHECK(decoding_complaint(bytes) == "");
}

TEST_CASE("decode: a JPEG without its end is undecodable") {
  const Bytes bytes =
      encode_jpeg(picture, GENERATE(JpegKind::rgb, JpegKind::progressive, JpegKind::cmyk));
  CHECK(decoding_complaint(std::span(bytes).first(bytes.size() - 1)) != "");
}

TEST_CASE("decode: a PNG without its last chunk is whole, one that lacks a byte of pixels is not") {
  const Bytes bytes = encode_png(picture, GENERATE(PngKind::rgb, PngKind::interlaced));
  constexpr std::size_t last_chunk = 12;

  for (std::size_t cut = 1; cut <= last_chunk; ++cut) {
    CAPTURE(cut);
    CHECK(decoded(std::span(bytes).first(bytes.size() - cut)).pixels == picture.pixels);
  }
  for (std::size_t cut = last_chunk + 1; cut < 40; ++cut) {
    CAPTURE(cut);
    CHECK_THAT(decoding_complaint(std::span(bytes).first(bytes.size() - cut)), Contains("(PNG)"));
  }
  Bytes bad_sum = bytes;
  bad_sum[bytes.size() - last_chunk - 1] ^= 1;
  CHECK_THAT(decoding_complaint(bad_sum), Contains("CRC"));
}

TEST_CASE("decode: what a file is instead of JPEG or PNG is named") {
  const auto [begin, name] = GENERATE(table<std::string, std::string>({
      {"GIF89a", "a GIF image"},
      {std::string("RIFF\x24\0\0\0WEBPVP8 ", 16), "a WebP image"},
      {std::string("BM\x36\x4\0\0\0\0\0\0\x36", 11), "a BMP image"},
      {std::string("II*\0\x8\0\0\0", 8), "a TIFF image"},
      {std::string("MM\0*\0\0\0\x8", 8), "a TIFF image"},
      {std::string("\0\0\0\x18"
                   "ftypheic\0\0\0\0",
                   16),
       "an HEIC image"},
      {std::string("\0\0\0\x20"
                   "ftypavif\0\0\0\0",
                   16),
       "an AVIF image"},
      {std::string("RIFF\x24\0\0\0WAVEfmt ", 16), "neither JPEG nor PNG, begins with 52 49 46 46"},
      {"BMW", "neither JPEG nor PNG"},
  }));
  CAPTURE(name);
  CHECK_THAT(decoding_complaint(Bytes(begin.begin(), begin.end())), Contains(name));
}

TEST_CASE("decode: where a JPEG is cut matters to those that need what is missing") {
  const Bytes bytes = encode_jpeg(noisy_image({200, 100}));
  const auto cut = std::span(bytes).first(bytes.size() / 2);
  const auto decoder = make_image_decoder(plenty);
  Image image;

  decoder->open(cut);
  const CropRequest upper{20, 10, {50, 40}};
  CHECK(differences(decoder->pixels(upper, image), upper, decoded(bytes)) == 0);
  decoder->open(cut);
  CHECK_THROWS_WITH(decoder->pixels({120, 10, {50, 40}}, image), Contains("near byte"));
}

TEST_CASE("decode: a camera's note that it was turned is not followed") {
  Bytes turned = encode_jpeg(picture);
  const std::vector<std::uint8_t> note{
      0xFF, 0xE1, 0, 34, 'E', 'x', 'i', 'f', 0, 0,                     // a segment of 34 bytes
      'M',  'M',  0, 42, 0,   0,   0,   8,   0, 1,                     // a table of one entry:
      0x01, 0x12, 0, 3,  0,   0,   0,   1,   0, 6, 0, 0, 0, 0, 0, 0};  // orientation 6
  turned.insert(turned.begin() + 2, note.begin(), note.end());

  CHECK(decoded(turned).pixels == decoded(encode_jpeg(picture)).pixels);
}

TEST_CASE("decode: bytes too many between a JPEG's parts take nothing from it") {
  Bytes padded = encode_jpeg(picture);
  padded.insert(padded.end() - 2, {1, 2, 3, 4});
  Bytes followed = encode_jpeg(picture);
  followed.insert(followed.end(), {1, 2, 3, 4});

  CHECK(decoded(padded).pixels == decoded(encode_jpeg(picture)).pixels);
  CHECK(decoded(followed).pixels == decoded(encode_jpeg(picture)).pixels);
}

TEST_CASE("decode: kinds of JPEG that the library lacks are named") {
  Bytes deep = encode_jpeg(picture), lossless = encode_jpeg(picture);
  deep[frame_header(deep) + 4] = 12;
  lossless[frame_header(lossless) + 1] = 0xC3;

  CHECK_THAT(decoding_complaint(deep), Contains("precision 12"));
  CHECK_THAT(decoding_complaint(lossless), Contains("0xc3"));
}

TEST_CASE("decode: damage is named") {
  Bytes bad_huffman = encode_jpeg(gradient_image({64, 64}));
  std::fill(bad_huffman.end() - 40, bad_huffman.end() - 2, std::uint8_t{0xFE});
  Bytes bad_crc = encode_png(picture);
  bad_crc[bad_crc.size() / 2] ^= 1;
  const std::string text = "this is not an image";

  CHECK_THAT(decoding_complaint(bad_huffman), Contains("JPEG, near byte"));
  CHECK_THAT(decoding_complaint(bad_crc), Contains("(PNG)"));
  CHECK_THAT(decoding_complaint(Bytes(text.begin(), text.end())),
             Contains("neither JPEG nor PNG, begins with 74 68 69 73"));
  CHECK_THAT(decoding_complaint(Bytes{}), Contains("neither JPEG nor PNG"));
}

TEST_CASE("decode: no byte of a JPEG or PNG can be flipped to crash") {
  const Image small = gradient_image({9, 10});
  const auto good = GENERATE_COPY(encode_jpeg(small), encode_png(small),
                                  encode_jpeg(small, JpegKind::progressive));
  const auto decoder = make_image_decoder(plenty);
  Image image;
  for (std::size_t i = 0; i < good.size(); ++i)
    for (const int flip : {0x01, 0x80, 0xFF}) {
      Bytes bytes = good;
      bytes[i] = static_cast<std::uint8_t>(bytes[i] ^ flip);
      try {
        decoder->open(bytes);
        decoder->pixels({.extent = small.extent}, image);
      } catch (const Undecodable&) {
      }
    }
  decoder->open(good);
  decoder->pixels({.extent = small.extent}, image);
  CHECK(image.extent == small.extent);
}

TEST_CASE("decode: too many pixels are refused at the header") {
  Bytes huge_jpeg = encode_jpeg(picture);
  const std::size_t at = frame_header(huge_jpeg);
  for (std::size_t i = at + 5; i < at + 9; i += 2)
    huge_jpeg[i] = 65500 >> 8, huge_jpeg[i + 1] = 65500 & 255;
  const auto decoder = make_image_decoder(plenty);

  CHECK_THROWS_WITH(decoder->open(huge_jpeg), Contains("65500 x 65500 pixels"));
  CHECK_THROWS_AS(make_png_decoder(37 * 53 - 1)->open(encode_png(picture)), Undecodable);
  CHECK_THROWS_AS(make_jpeg_decoder(37 * 53 - 1)->open(encode_jpeg(picture)), Undecodable);
  CHECK_NOTHROW(make_jpeg_decoder(37 * 53)->open(encode_jpeg(picture)));
}

TEST_CASE("decode: a progressive image of very many scans is refused") {
  CHECK_THAT(decoding_complaint(encode_jpeg(picture, JpegKind::many_scans)),
             Contains("more than 100 scans"));
}
