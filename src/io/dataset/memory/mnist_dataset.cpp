#include <fmt/core.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <system_error>

#include "io/dataset/class_names.hpp"
#include "io/dataset/datasets.hpp"
#include "io/dataset/memory/grey_reader.hpp"
#include "io/files/file_bytes.hpp"
#include "ringtrain/base/hash.hpp"
#include "ringtrain/base/text.hpp"

// The format IDX: yann.lecun.com/exdb/mnist. Its numbers are big-endian.
namespace ringtrain::io {
namespace {

namespace fs = std::filesystem;

constexpr std::array<const char*, 10> digits{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"},
    fashion{"T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
            "Sandal",      "Shirt",   "Sneaker",  "Bag",   "Ankle boot"};

[[noreturn]] void fail_mnist(const fs::path& path, std::string_view reason) {
  throw Error(Exit::data, "read MNIST in " + printable(path.native()), reason);
}

bool is_there(const fs::path& path) {
  return retry_listing(path, [&] { return fs::exists(path); });
}

/// As the archive calls it, or as some unpack it, compressed or not.
fs::path file_in(const fs::path& directory, const std::string& split, const std::string& kind) {
  for (const fs::path& home : {directory, directory / "raw"})  // torchvision's folder
    for (const char* separator : {"-", "."})
      for (const char* ending : {"", ".gz"})
        if (const fs::path path = home / (split + "-" + kind.substr(0, kind.find('-')) + separator +
                                          kind.substr(kind.find('-') + 1) + ending);
            is_there(path))
          return path;
  fail_mnist(directory, fmt::format("{0}-{1} is not there, nor {0}-{1}.gz", split, kind));
}

std::uint32_t number_at(const std::vector<std::uint8_t>& bytes, std::size_t offset) {
  std::uint32_t number = 0;
  for (std::size_t i = 0; i < 4; ++i) number = number << 8 | bytes[offset + i];
  return number;
}

/// What an IDX file has in front of its bytes.
struct Head {
  std::vector<std::uint32_t> extents;
  std::uint64_t count = 1;  ///< of bytes

  static std::size_t size(std::size_t dimensions) { return 4 + 4 * dimensions; }
  Head(const fs::path& path, std::size_t dimensions, const std::vector<std::uint8_t>& bytes) {
    const std::uint32_t magic = 0x800 + static_cast<std::uint32_t>(dimensions);
    if (bytes.size() < size(dimensions) || number_at(bytes, 0) != magic)
      fail_mnist(path,
                 fmt::format("does not begin as IDX does with {} dimensions of bytes (0x{:08x})",
                             dimensions, magic));
    for (std::size_t d = 0; d < dimensions; ++d) {
      const std::uint32_t extent = number_at(bytes, 4 + 4 * d);
      constexpr std::uint64_t most = std::uint64_t{1} << 40;
      if (extent == 0 || (count *= extent) > most) fail_mnist(path, "has an extent that cannot be");
      extents.push_back(extent);
    }
  }
};

/// What gzip compressed, or the bytes as they are: no more than a piece beyond what the head says.
std::vector<std::uint8_t> unzipped(const fs::path& path, std::size_t dimensions,
                                   std::vector<std::uint8_t> bytes) {
  constexpr int gzip = 16 + MAX_WBITS;
  constexpr std::size_t piece = 1 << 20;
  if (bytes.size() < 2 || bytes[0] != 0x1f || bytes[1] != 0x8b) return bytes;
  z_stream stream{};
  if (::inflateInit2(&stream, gzip) != Z_OK) throw std::bad_alloc();
  const std::unique_ptr<z_stream, int (*)(z_stream*)> end(&stream, ::inflateEnd);
  stream.next_in = bytes.data();
  stream.avail_in = static_cast<uInt>(bytes.size());
  std::vector<std::uint8_t> all;
  std::uint64_t most = 0;  // of the head
  for (int state = Z_OK; state != Z_STREAM_END;) {
    const std::size_t before = all.size();
    if (before > 0 && most == 0) most = Head::size(dimensions) + Head(path, dimensions, all).count;
    if (before > most) break;
    all.resize(before + piece);
    stream.next_out = &all[before];
    stream.avail_out = piece;
    state = ::inflate(&stream, Z_NO_FLUSH);
    all.resize(before + piece - stream.avail_out);
    if (state != Z_OK && state != Z_STREAM_END)
      fail_mnist(path, "its gzip data are damaged, or not whole");
  }
  return all;
}

/// An array of bytes.
struct Array {
  std::vector<std::uint32_t> extents;
  std::vector<std::uint8_t> values;
};

Array read_array(const fs::path& path, std::size_t dimensions, WorkProgress* progress) {
  at(progress, Work::index, path.native());
  std::vector<std::uint8_t> bytes;
  read_large_file(path, bytes, progress);
  bytes = unzipped(path, dimensions, std::move(bytes));
  Head head(path, dimensions, bytes);
  const std::size_t before = Head::size(dimensions);
  if (head.count != bytes.size() - before)
    fail_mnist(path,
               fmt::format("its {} bytes are not the {} that its head says; is the file whole?",
                           bytes.size() - before, head.count));
  bytes.erase(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(before));
  return {std::move(head.extents), std::move(bytes)};
}

class Mnist final : public Dataset {
 public:
  Mnist(const std::string& directory, Split split, WorkProgress* progress);

  std::uint64_t size() const override { return labels_.size(); }
  const std::vector<std::string>& class_names() const override { return names_; }
  int label(std::uint64_t sample) const override { return labels_[sample]; }
  std::unique_ptr<SampleReader> reader() const override {
    return std::make_unique<GreyReader<Mnist>>(*this);
  }
  std::string description() const override { return description_; }
  std::uint64_t manifest_hash() const override { return manifest_; }
  GreyView grey(std::uint64_t sample) const {
    return {extent_, std::span(pixels_).subspan(sample * extent_.pixels(), extent_.pixels())};
  }

 private:
  std::vector<std::string> names_;
  std::vector<std::uint8_t> pixels_, labels_;
  Extent extent_;
  std::uint64_t manifest_ = 0;
  std::string description_;
};

std::vector<std::string> names_of(const fs::path& directory) {
  if (auto names = names_in_file(directory / "classes.txt"); !names.empty()) return names;
  std::string path = fs::absolute(directory).native();
  std::ranges::transform(path, path.begin(), [](unsigned char c) { return std::tolower(c); });
  const auto& usual = path.find("fashion") != path.npos ? fashion : digits;
  return {usual.begin(), usual.end()};
}

Mnist::Mnist(const std::string& directory, Split split, WorkProgress* progress)
    : names_(names_of(directory)) {
  constexpr std::uint32_t most_extent = 4096;
  const std::string part = split == Split::training ? "train" : "t10k";
  const fs::path images = file_in(directory, part, "images-idx3-ubyte"),
                 labels = file_in(directory, part, "labels-idx1-ubyte");
  Array image_array = read_array(images, 3, progress),
        label_array = read_array(labels, 1, progress);
  const auto& extents = image_array.extents;
  if (std::max(extents[1], extents[2]) > most_extent)
    fail_mnist(images, fmt::format("images of {}x{} are too large", extents[1], extents[2]));
  if (extents[0] != label_array.extents[0])
    fail_mnist(labels, fmt::format("has {} labels, but {} has {} images", label_array.extents[0],
                                   images.filename().native(), extents[0]));
  extent_ = {static_cast<int>(extents[1]), static_cast<int>(extents[2])};
  pixels_ = std::move(image_array.values);
  labels_ = std::move(label_array.values);
  const std::uint8_t largest = std::ranges::max(labels_);
  if (largest >= names_.size())
    fail_mnist(
        labels,
        fmt::format("has label {}, but there are {} classes: name them in {}, a line each", largest,
                    names_.size(), printable((fs::path(directory) / "classes.txt").native())));
  manifest_ =
      hash_bytes(std::as_bytes(std::span(labels_)), hash_bytes(std::as_bytes(std::span(pixels_))));
  description_ = fmt::format("mnist: {} images of {}x{} from {}", size(), extent_.height,
                             extent_.width, printable(images.native()));
}

}  // namespace

std::unique_ptr<Dataset> open_mnist(const std::string& directory, Split split,
                                    WorkProgress* progress) try {
  at(progress, Work::list, directory);
  return std::make_unique<Mnist>(directory, split, progress);
} catch (const fs::filesystem_error& failure) {
  fail_mnist(failure.path1(), failure.code().message());
}

}  // namespace ringtrain::io
