#include <csetjmp>
#include <cstdio>
#include <memory>
// jpeglib.h needs size_t and FILE declared before it.
#include <fmt/core.h>
#include <jpeglib.h>
// jerror.h needs what jpeglib.h declares.
#include <jerror.h>

#include <algorithm>
#include <array>

#include "io/image/decoder.hpp"

namespace ringtrain::io {
namespace {

// A progressive image of very many scans takes hours to decode; real ones have about ten.
constexpr int most_scans = 100;

// Huffman coding gives a bit at least to each block of 8 x 8 values, of which the finest component
// has one for each block of pixels. Arithmetic coding may give less to large images of one colour,
// which are refused. What is small costs little memory, however it is coded.
constexpr std::uint64_t densest_pixels = 8 * 64, small_jpeg = std::uint64_t{1} << 20;

/// Where libjpeg's callbacks, which may not return, leave to. The library's structs come first so
/// that a pointer to them is one to this.
struct Escape {
  jpeg_error_mgr errors;
  std::jmp_buf target;
  std::array<char, JMSG_LENGTH_MAX> message;
};

[[noreturn]] void leave(j_common_ptr info) {
  auto* escape = reinterpret_cast<Escape*>(info->err);
  info->err->format_message(info, escape->message.data());
  std::longjmp(escape->target, 1);
}

// Remarks on data that takes nothing from the pixels: bytes between two parts that belong to
// neither, a version or colour transform of later years.
bool is_harmless(int code) {
  return code == JWRN_EXTRANEOUS_DATA || code == JWRN_JFIF_MAJOR || code == JWRN_ADOBE_XFORM;
}

// Level -1 is a warning; the others are traces.
void on_message(j_common_ptr info, int level) {
  if (level < 0 && !is_harmless(info->err->msg_code)) leave(info);
}

void on_progress(j_common_ptr info) {
  if (!info->is_decompressor) return;
  if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number <= most_scans) return;
  auto* escape = reinterpret_cast<Escape*>(info->err);
  std::snprintf(escape->message.data(), escape->message.size(), "more than %d scans", most_scans);
  std::longjmp(escape->target, 1);
}

bool is_cmyk(const jpeg_decompress_struct& info) {
  return info.jpeg_color_space == JCS_CMYK || info.jpeg_color_space == JCS_YCCK;
}

/// The largest reduction that libjpeg makes in the transform and that is allowed.
int reduction_within(int allowed) {
  for (const int by : {8, 4, 2})
    if (by <= allowed) return by;
  return 1;
}

/// Rows and columns of the reduced image.
struct Cut {
  JDIMENSION top, bottom, left, right;
};

// Colours are interpolated between columns, and where the library cuts it takes the first and last
// column for the image's edge: so it has to cut some further out.
constexpr int margin = 4;

/// Whether a progressive image lacks scans. The library then smooths across several blocks.
bool lacks_scans(const jpeg_decompress_struct& info) {
  if (info.coef_bits == nullptr) return false;  // not progressive
  const auto* components = info.coef_bits;
  return std::any_of(components, components + info.num_components, [](const auto& bits) {
    return std::ranges::any_of(bits, [](int missing) { return missing != 0; });
  });
}

/// Whether the transform enlarges a component (4x2 and 2x4, reduced by 2 or 4, have such) and not
/// to the full size. The library interpolates the rest, and where it cuts it expects no more
/// columns than the sampling factors say: what is right of them would be what memory held.
bool is_enlarged_in_part(const jpeg_component_info& component, const jpeg_decompress_struct& info) {
  const auto sampled = static_cast<JDIMENSION>(component.h_samp_factor),
             finest = static_cast<JDIMENSION>(info.max_h_samp_factor);
  const bool whole = component.downsampled_width == info.output_width &&
                     component.downsampled_height == info.output_height;
  return !whole &&
         component.downsampled_width != (info.output_width * sampled + finest - 1) / finest;
}

bool may_cut_columns(const jpeg_decompress_struct& info) {
  return !lacks_scans(info) &&
         std::none_of(info.comp_info, info.comp_info + info.num_components,
                      [&](const auto& component) { return is_enlarged_in_part(component, info); });
}

Cut cut_of(const CropRequest& need, int reduction, const jpeg_decompress_struct& info) {
  const auto within = [](int at, JDIMENSION side) {
    return std::min(static_cast<JDIMENSION>(std::max(at, 0)), side);
  };
  const int bottom = (need.top + need.extent.height + reduction - 1) / reduction;
  const int right = (need.left + need.extent.width + reduction - 1) / reduction;
  const JDIMENSION first = within(need.top / reduction, info.output_height),
                   end = within(bottom, info.output_height);
  if (!may_cut_columns(info)) return {first, end, 0, info.output_width};
  return {first, end, within(need.left / reduction - margin, info.output_width),
          within(right + margin, info.output_width)};
}

/// Product of two fractions of 255, rounded.
std::uint8_t times(unsigned a, unsigned b) {
  return static_cast<std::uint8_t>((a * b + 127) / 255);
}

// Adobe's programs write CMYK inverted (255 is no ink), and mark that they wrote it.
void convert_cmyk(std::span<const std::uint8_t> cmyk, bool inverted, std::uint8_t* rgb) {
  const unsigned flip = inverted ? 0 : 255;
  for (std::size_t i = 0; i < cmyk.size(); i += 4)
    for (std::size_t c = 0; c < 3; ++c) *rgb++ = times(cmyk[i + c] ^ flip, cmyk[i + 3] ^ flip);
}

class JpegDecoder final : public Decoder {
 public:
  explicit JpegDecoder(std::uint64_t max_pixels);
  ~JpegDecoder() override { jpeg_destroy_decompress(&info_); }
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;

  Extent open(std::span<const std::uint8_t> bytes) override;
  PixelView pixels(const CropRequest& need, Image& memory) override;

 private:
  template <class Calls>
  void guarded(Calls calls);
  void cut_columns(Cut& cut);
  void read_rows(const Cut& cut, std::uint8_t* pixels);

  const std::uint64_t max_pixels_;
  std::size_t size_ = 0;
  jpeg_decompress_struct info_{};
  Escape escape_{};
  jpeg_progress_mgr progress_{};
  std::vector<std::uint8_t> cmyk_;
};

JpegDecoder::JpegDecoder(std::uint64_t max_pixels) : max_pixels_(max_pixels) {
  info_.err = jpeg_std_error(&escape_.errors);
  escape_.errors.error_exit = leave;
  escape_.errors.emit_message = on_message;
  guarded([&] { jpeg_create_decompress(&info_); });
  progress_.progress_monitor = on_progress;
  info_.progress = &progress_;
}

// libjpeg leaves by longjmp: `calls` may own nothing and nothing here changes after setjmp.
template <class Calls>
void JpegDecoder::guarded(Calls calls) {
  if (setjmp(escape_.target) == 0) return calls();
  const std::size_t left = info_.src ? info_.src->bytes_in_buffer : 0;
  const std::size_t at = size_ - std::min(left, size_);
  jpeg_abort_decompress(&info_);
  throw Undecodable(
      fmt::format("{} (JPEG, near byte {} of {})", escape_.message.data(), at, size_));
}

Extent JpegDecoder::open(std::span<const std::uint8_t> bytes) {
  size_ = bytes.size();
  jpeg_abort_decompress(&info_);
  guarded([&] {
    jpeg_mem_src(&info_, bytes.data(), bytes.size());
    jpeg_read_header(&info_, TRUE);
  });
  check_extent(info_.image_height, info_.image_width, max_pixels_);
  const Extent full{static_cast<int>(info_.image_height), static_cast<int>(info_.image_width)};
  if (full.pixels() > small_jpeg) check_bytes(full, full.pixels() / densest_pixels, bytes.size());
  return full;
}

PixelView JpegDecoder::pixels(const CropRequest& need, Image& memory) {
  const int reduction = reduction_within(need.reduction);
  info_.out_color_space = is_cmyk(info_) ? JCS_CMYK : JCS_RGB;
  info_.scale_num = 1;
  info_.scale_denom = static_cast<unsigned>(reduction);
  guarded([&] { jpeg_start_decompress(&info_); });
  Cut cut = cut_of(need, reduction, info_);
  guarded([&] { cut_columns(cut); });
  memory.reshape({static_cast<int>(cut.bottom - cut.top), static_cast<int>(info_.output_width)});
  const PixelView portion{memory.view(), static_cast<int>(cut.top), static_cast<int>(cut.left),
                          reduction};
  if (!is_cmyk(info_)) {
    guarded([&] { read_rows(cut, memory.pixels.data()); });
    return portion;
  }
  cmyk_.resize(memory.extent.pixels() * 4);
  guarded([&] { read_rows(cut, cmyk_.data()); });
  convert_cmyk(cmyk_, info_.saw_Adobe_marker, memory.pixels.data());
  return portion;
}

// The library can only cut at its blocks, so it moves the left side out.
void JpegDecoder::cut_columns(Cut& cut) {
  if (cut.right - cut.left == info_.output_width) return;
  JDIMENSION width = cut.right - cut.left;
  jpeg_crop_scanline(&info_, &cut.left, &width);
}

void JpegDecoder::read_rows(const Cut& cut, std::uint8_t* pixels) {
  const std::size_t row = std::size_t(info_.output_width) * info_.output_components;
  if (cut.top > 0) jpeg_skip_scanlines(&info_, cut.top);
  while (info_.output_scanline < cut.bottom) {
    std::array<JSAMPROW, 8> rows;
    const std::size_t left = std::min<std::size_t>(cut.bottom - info_.output_scanline, rows.size());
    for (std::size_t i = 0; i < left; ++i)
      rows[i] = pixels + (info_.output_scanline - cut.top + i) * row;
    jpeg_read_scanlines(&info_, rows.data(), static_cast<JDIMENSION>(left));
  }
  if (cut.bottom == info_.output_height)
    jpeg_finish_decompress(&info_);
  else
    jpeg_abort_decompress(&info_);
}

}  // namespace

std::unique_ptr<Decoder> make_jpeg_decoder(std::uint64_t max_pixels) {
  return std::make_unique<JpegDecoder>(max_pixels);
}

}  // namespace ringtrain::io
