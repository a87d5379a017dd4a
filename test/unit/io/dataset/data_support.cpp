#include "unit/io/dataset/data_support.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "ringtrain/base/hash.hpp"

namespace ringtrain::test {

namespace fs = std::filesystem;

TempDirectory::TempDirectory() {
  std::string pattern = (fs::temp_directory_path() / "ringtrain-XXXXXX").native();
  if (::mkdtemp(pattern.data()) == nullptr) throw Error("mkdtemp", pattern);
  path_ = pattern;
}

TempDirectory::~TempDirectory() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

OrdinaryUser::OrdinaryUser(const fs::path& home) : was_root_(::geteuid() == 0) {
  fs::permissions(home, fs::perms(0755));
  if (was_root_) check_errno(::seteuid(65534), "seteuid");
}

OrdinaryUser::~OrdinaryUser() {
  if (was_root_) static_cast<void>(::seteuid(0));
}

void write_file(const fs::path& path, std::span<const std::uint8_t> bytes) {
  fs::create_directories(path.parent_path());
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
}

void write_text(const fs::path& path, std::string_view text) {
  write_file(path, {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
}

io::Image gradient_image(io::Extent extent, int seed) {
  io::Image image;
  image.reshape(extent);
  std::size_t i = 0;
  for (int y = 0; y < extent.height; ++y)
    for (int x = 0; x < extent.width; ++x)
      for (int c = 0; c < io::Image::channels; ++c)
        image.pixels[i++] = static_cast<std::uint8_t>(
            (40 * c + 3 * seed + (y * 90) / extent.height + (x * 80) / extent.width) % 256);
  return image;
}

int largest_difference(const io::ImageView& a, const io::ImageView& b) {
  if (a.extent != b.extent || a.pixels.size() != b.pixels.size()) return 256;
  int largest = 0;
  for (std::size_t i = 0; i < a.pixels.size(); ++i)
    largest = std::max(largest, std::abs(int{a.pixels[i]} - int{b.pixels[i]}));
  return largest;
}

std::uint64_t hash_of(std::span<const std::uint8_t> pixels, std::uint64_t seed) {
  return hash_bytes(std::as_bytes(pixels), seed);
}

namespace {

class CountingReader final : public io::SampleReader {
 public:
  CountingReader(const CountingDataset& data, std::vector<std::uint64_t> unreadable)
      : data_(data), unreadable_(std::move(unreadable)) {}
  io::Extent open(std::uint64_t sample) override {
    if (std::ranges::find(unreadable_, sample) != unreadable_.end())
      throw io::UnreadableSample(fmt::format("read sample {}", sample), "planted");
    image_ = data_.image(sample);
    return image_.extent;
  }
  io::PixelView pixels(const io::CropRequest&) override { return {image_.view()}; }

 private:
  const CountingDataset& data_;
  std::vector<std::uint64_t> unreadable_;
  io::Image image_;
};

}  // namespace

std::unique_ptr<io::SampleReader> CountingDataset::reader() const {
  return std::make_unique<CountingReader>(*this, unreadable_);
}

io::Image CountingDataset::image(std::uint64_t sample) const {
  io::Image image;
  image.reshape(extent_);
  for (std::size_t i = 0; i < image.pixels.size(); ++i)
    image.pixels[i] = static_cast<std::uint8_t>(sample * 31 + i * 7 + i / 5);
  return image;
}

}  // namespace ringtrain::test
