// Any bytes as an array of images: a data set whose labels and images are in range, or refused with
// Error. The first byte says what of: 0, one of numpy.save(); odd, MNIST's images, with labels
// beside them. Else they are CSV, whose fields have no more bytes than the file.
#include "fuzz/memory_folder.hpp"
#include "io/dataset/datasets.hpp"
#include "io/files/csv.hpp"
#include "ringtrain/base/error.hpp"
#include "ringtrain/base/text.hpp"

using namespace ringtrain;
using namespace ringtrain::test;
namespace fs = std::filesystem;

namespace {

void read_all(const io::Dataset& data) {
  const auto reader = data.reader();
  for (std::uint64_t i = 0; i < std::min<std::uint64_t>(data.size(), 100); ++i) {
    expect(data.label(i) >= -1 && data.label(i) < data.classes());
    const io::Extent extent = reader->open(i);
    expect(reader->pixels({.extent = extent}).pixels.pixels.size() == 3 * extent.pixels());
  }
}

std::unique_ptr<io::Dataset> open(const fs::path& folder, std::uint8_t kind,
                                  std::span<const std::uint8_t> bytes) {
  if (kind == 0) {
    write_bytes(folder / "a.npy", bytes);
    return io::open_numpy((folder / "a.npy").native(), {.class_names = {"a"}});
  }
  const std::size_t count = kind / 2;
  const auto size = static_cast<std::uint8_t>(count);
  std::vector<std::uint8_t> labels{0, 0, 8, 1, 0, 0, 0, size};
  labels.resize(labels.size() + count, 9);
  write_bytes(folder / "train-labels-idx1-ubyte", labels);
  write_bytes(folder / "train-images-idx3-ubyte", bytes);
  return io::open_mnist(folder.native(), io::Split::training, nullptr);
}

}  // namespace

namespace {

void read_rows(std::string_view text) try {
  std::size_t bytes = 0;
  for (const auto& row : io::csv_rows(text))
    for (const std::string& field : row) bytes += field.size();
  expect(bytes <= text.size());
} catch (const BadValue&) {
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  static const MemoryFolder folder("arrays_fuzz");
  if (size == 0) return 0;
  if (bytes[0] > 0 && bytes[0] % 2 == 0) {
    read_rows({reinterpret_cast<const char*>(bytes) + 1, size - 1});
    return 0;
  }
  try {
    read_all(*open(folder.path, bytes[0], {bytes + 1, size - 1}));
  } catch (const Error& refused) {
    expect(refused.code() == Exit::data);
  }
  return 0;
}
