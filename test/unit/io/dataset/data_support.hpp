#pragma once
#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ringtrain/base/error.hpp"
#include "ringtrain/io/dataset/dataset.hpp"

namespace ringtrain::test {

using Bytes = std::vector<std::uint8_t>;

/// A new directory, removed with all it holds.
class TempDirectory {
 public:
  TempDirectory();
  ~TempDirectory();
  TempDirectory(const TempDirectory&) = delete;
  TempDirectory& operator=(const TempDirectory&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// While it lives, root (who may read everything) is nobody, and may still enter `home`.
class OrdinaryUser {
 public:
  explicit OrdinaryUser(const std::filesystem::path& home);
  ~OrdinaryUser();
  OrdinaryUser(const OrdinaryUser&) = delete;
  OrdinaryUser& operator=(const OrdinaryUser&) = delete;

 private:
  const bool was_root_;
};

/// Writes a file and the directories above it.
void write_file(const std::filesystem::path& path, std::span<const std::uint8_t> bytes);
void write_text(const std::filesystem::path& path, std::string_view text);

/// An image whose values differ by place and channel, smooth enough for JPEG.
io::Image gradient_image(io::Extent extent, int seed = 0);

/// `coarse` is progressive without the scans of fine detail.
enum class JpegKind { rgb, grey, progressive, coarse, many_scans, arithmetic, cmyk, ycck };
inline constexpr std::array all_jpeg_kinds{
    JpegKind::rgb,        JpegKind::grey,       JpegKind::progressive, JpegKind::coarse,
    JpegKind::many_scans, JpegKind::arithmetic, JpegKind::cmyk,        JpegKind::ycck};
/// A component's sampling factors: how many of its blocks lie side by side, and below each other,
/// where the coarsest component has one.
struct Sampling {
  int across = 1, down = 1;
};
/// For cmyk and ycck the image is written as Adobe's programs do: inverted, marked, without black.
/// `factors` are those of the first components; the library chooses the others'.
Bytes encode_jpeg(const io::Image& image, JpegKind kind = JpegKind::rgb, int quality = 95,
                  std::span<const Sampling> factors = {});

enum class PngKind { rgb, grey, grey_16, rgb_16, rgb_alpha, palette, grey_1, interlaced };
inline constexpr std::array all_png_kinds{PngKind::rgb,    PngKind::grey,      PngKind::grey_16,
                                          PngKind::rgb_16, PngKind::rgb_alpha, PngKind::palette,
                                          PngKind::grey_1, PngKind::interlaced};
Bytes encode_png(const io::Image& image, PngKind kind = PngKind::rgb);

/// Largest difference of two images' values; 256 when their extents differ.
int largest_difference(const io::ImageView& a, const io::ImageView& b);

std::uint64_t hash_of(std::span<const std::uint8_t> pixels, std::uint64_t seed = 0);

/// The error that `action` ends with; nullopt when it does not.
template <class Action>
std::optional<Error> error_of(Action action) {
  try {
    action();
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

/// A data set for tests of the loader: any size, every sample another image, some unreadable.
class CountingDataset final : public io::Dataset {
 public:
  CountingDataset(std::uint64_t size, io::Extent extent, std::vector<std::uint64_t> unreadable = {})
      : size_(size), extent_(extent), unreadable_(std::move(unreadable)) {}

  std::uint64_t size() const override { return size_; }
  const std::vector<std::string>& class_names() const override { return names_; }
  int label(std::uint64_t sample) const override { return static_cast<int>(sample % 3); }
  std::unique_ptr<io::SampleReader> reader() const override;
  std::string description() const override { return "counting"; }
  std::uint64_t manifest_hash() const override { return size_; }

  io::Image image(std::uint64_t sample) const;

 private:
  std::uint64_t size_;
  io::Extent extent_;
  std::vector<std::uint64_t> unreadable_;
  std::vector<std::string> names_{"a", "b", "c"};
};

}  // namespace ringtrain::test
