#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string_view>

#include "io/dataset/datasets.hpp"
#include "io/dataset/memory/grey_reader.hpp"
#include "io/files/file_bytes.hpp"
#include "ringtrain/base/hash.hpp"
#include "ringtrain/base/text.hpp"

// NumPy's format: numpy.org, "numpy.lib.format".
namespace ringtrain::io {
namespace {

[[noreturn]] void fail_array(const std::string& path, std::string_view reason) {
  throw Error(Exit::data, "read " + printable(path), reason);
}

struct ArrayHeader {
  std::string text;  // Python's dictionary of descr, fortran_order and shape
  std::size_t bytes = 0;
};

std::optional<ArrayHeader> header_of(std::span<const std::uint8_t> file) {
  constexpr std::string_view magic = "\x93NUMPY";
  constexpr std::size_t version = magic.size(), length = version + 2;
  if (file.size() < length + 4 ||
      !std::equal(magic.begin(), magic.end(), file.begin(),
                  [](char a, std::uint8_t b) { return std::uint8_t(a) == b; }))
    return std::nullopt;
  const std::size_t wide = file[version] == 1 ? 2 : 4;
  std::size_t count = 0;
  for (std::size_t i = wide; i-- > 0;) count = count << 8 | file[length + i];
  if (count > file.size() - length - wide) return std::nullopt;
  const auto begin = file.begin() + static_cast<std::ptrdiff_t>(length + wide);
  return ArrayHeader{std::string(begin, begin + static_cast<std::ptrdiff_t>(count)),
                     length + wide + count};
}

// What stands behind 'key': in the dictionary.
std::string_view value_of(std::string_view header, std::string_view key) {
  const std::size_t at = header.find(fmt::format("'{}':", key));
  if (at == header.npos) return "";
  header.remove_prefix(at + key.size() + 3);
  header.remove_prefix(std::min(header.find_first_not_of(' '), header.size()));
  return header;
}

std::vector<std::uint64_t> shape_of(std::string_view header) {
  std::string_view shape = value_of(header, "shape");
  if (!shape.starts_with('(')) return {};
  shape = shape.substr(1, shape.find(')') - 1);
  std::vector<std::uint64_t> extents;
  for (const std::string& word : split(shape, ',')) {
    const std::size_t first = word.find_first_not_of(' ');
    if (first == word.npos) continue;
    const auto extent = number_in<std::uint64_t>(std::string_view(word).substr(first));
    if (!extent) return {};
    extents.push_back(*extent);
  }
  return extents;
}

class NumpyImages final : public Dataset {
 public:
  NumpyImages(const std::string& path, const DatasetOptions& options);

  std::uint64_t size() const override { return count_; }
  const std::vector<std::string>& class_names() const override { return names_; }
  int label(std::uint64_t) const override { return -1; }
  std::unique_ptr<SampleReader> reader() const override {
    if (grey_) return std::make_unique<GreyReader<NumpyImages>>(*this);
    return std::make_unique<MemoryReader<NumpyImages>>(*this);
  }
  std::string description() const override { return description_; }
  std::uint64_t manifest_hash() const override { return manifest_; }
  ImageView image(std::uint64_t sample) const {
    const std::size_t bytes = extent_.pixels() * Image::channels;
    return {extent_, std::span(pixels_).subspan(sample * bytes, bytes)};
  }
  GreyView grey(std::uint64_t sample) const {
    return {extent_, std::span(pixels_).subspan(sample * extent_.pixels(), extent_.pixels())};
  }

 private:
  const std::vector<std::string> names_;
  std::vector<std::uint8_t> pixels_;
  Extent extent_;
  bool grey_ = false;
  std::uint64_t count_ = 0, manifest_ = 0;
  std::string description_;
};

NumpyImages::NumpyImages(const std::string& path, const DatasetOptions& options)
    : names_(options.class_names) {
  at(options.progress, Work::open, path);
  read_large_file(path, pixels_, options.progress);
  const auto header = header_of(pixels_);
  if (!header) fail_array(path, "is no file of numpy.save()");
  const std::vector<std::uint64_t> shape = shape_of(header->text);
  const std::string_view type = value_of(header->text, "descr");
  const bool ordered = value_of(header->text, "fortran_order").starts_with("False");
  const std::uint64_t channels = shape.size() == 4 ? shape[3] : 1;
  constexpr std::uint64_t most_extent = 65'500;
  const bool fits = (shape.size() == 3 || shape.size() == 4) && shape[0] > 0 &&
                    std::min(shape[1], shape[2]) > 0 &&
                    std::max(shape[1], shape[2]) <= most_extent &&
                    (channels == 1 || channels == Image::channels);
  if (!type.starts_with("'|u1'") || !ordered || !fits)
    fail_array(
        path, "an array to predict is of uint8, images x height x width x 3, or x 1, in C's order");
  const std::uint64_t bytes = shape[1] * shape[2] * channels, held = pixels_.size() - header->bytes;
  if (held % bytes != 0 || held / bytes != shape[0])
    fail_array(path,
               fmt::format("its {} bytes are not the {} images that it says; is the file whole?",
                           held, shape[0]));
  manifest_ = hash_bytes(std::as_bytes(std::span(pixels_)));
  pixels_.erase(pixels_.begin(), pixels_.begin() + static_cast<std::ptrdiff_t>(header->bytes));
  count_ = shape[0];
  grey_ = channels == 1;
  extent_ = {static_cast<int>(shape[1]), static_cast<int>(shape[2])};
  description_ = fmt::format("{} of {}x{} in {}", plural(count_, "image"), extent_.height,
                             extent_.width, printable(path));
}

}  // namespace

std::unique_ptr<Dataset> open_numpy(const std::string& path, const DatasetOptions& options) {
  return std::make_unique<NumpyImages>(path, options);
}

}  // namespace ringtrain::io
