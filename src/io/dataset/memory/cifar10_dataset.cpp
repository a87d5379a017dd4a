#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <sstream>
#include <system_error>

#include "io/dataset/datasets.hpp"
#include "io/dataset/encoded_dataset.hpp"
#include "io/files/file_bytes.hpp"
#include "ringtrain/base/hash.hpp"
#include "ringtrain/base/text.hpp"

namespace ringtrain::io {
namespace {

namespace fs = std::filesystem;

// A record is a label and the red, green and blue planes.
constexpr Extent extent{32, 32};
constexpr std::size_t plane = 32 * 32;
constexpr std::size_t image_bytes = Image::channels * plane;
constexpr std::size_t record_bytes = 1 + image_bytes;
constexpr std::array<const char*, 10> usual_names{
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"};

[[noreturn]] void fail_cifar10(const fs::path& path, std::string_view reason) {
  throw Error(Exit::data, "read CIFAR-10 in " + printable(path.native()), reason);
}

/// Where the files are: the directory itself, or the one that the published archive makes in it.
fs::path home_of(const fs::path& directory) {
  const fs::path inner = directory / "cifar-10-batches-bin";
  return retry_listing(inner, [&] { return fs::is_directory(inner); }) ? inner : directory;
}

bool is_batch(const std::string& name) {
  return name.starts_with("data_batch_") && name.ends_with(".bin");
}

std::vector<std::string> batches_in(const fs::path& home) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(home))
    if (std::string name = entry.path().filename(); is_batch(name)) names.push_back(name);
  return names;
}

[[noreturn]] void fail_without_batches(const fs::path& home) {
  std::error_code ignored;
  fail_cifar10(home, fs::exists(home / "data_batch_1", ignored)
                         ? "this is the version for Python; the binary version is needed "
                           "(cifar-10-binary.tar.gz)"
                         : "no data_batch_*.bin there; the binary version of CIFAR-10 is needed");
}

// A batch that is missing, or there twice under another name, would go unnoticed.
std::vector<fs::path> training_files(const fs::path& home) {
  const auto names = retry_listing(home, [&] { return batches_in(home); });
  if (names.empty()) fail_without_batches(home);
  std::vector<fs::path> files;
  for (std::size_t i = 1; i <= names.size(); ++i) {
    const std::string name = fmt::format("data_batch_{}.bin", i);
    if (std::ranges::find(names, name) == names.end())
      fail_cifar10(home, fmt::format("{} is missing, though {} files data_batch_*.bin are there; "
                                     "batches are numbered 1, 2 and so on: copy what is missing, "
                                     "remove what is there twice",
                                     name, names.size()));
    files.push_back(home / name);
  }
  return files;
}

std::vector<std::string> read_names(const fs::path& home) {
  const fs::path path = home / "batches.meta.txt";
  std::vector<std::uint8_t> bytes;
  try {
    read_file(path, bytes);
  } catch (const UnreadableSample&) {
    return {usual_names.begin(), usual_names.end()};
  }
  std::istringstream file(std::string(bytes.begin(), bytes.end()));
  std::vector<std::string> names;
  for (std::string line; std::getline(file, line);) {
    if (line.ends_with('\r')) line.pop_back();
    if (!line.empty()) names.push_back(line);
  }
  if (names.size() != usual_names.size())
    fail_cifar10(path, fmt::format("{} class names, not {}", names.size(), usual_names.size()));
  return names;
}

void interleave(const std::uint8_t* planes, std::uint8_t* pixels) {
  for (std::size_t i = 0; i < plane; ++i)
    for (std::size_t c = 0; c < Image::channels; ++c) *pixels++ = planes[c * plane + i];
}

class Cifar10 final : public Dataset {
 public:
  Cifar10(const std::string& directory, Split split, WorkProgress* progress) {
    at(progress, Work::list, directory);
    const fs::path home = home_of(directory);
    const auto files = split == Split::training ? training_files(home)
                                                : std::vector<fs::path>{home / "test_batch.bin"};
    names_ = read_names(home);
    for (const fs::path& file : files) append(file, progress);
    description_ = fmt::format("cifar10: {} images from {} file{} of {}", size(), files.size(),
                               files.size() == 1 ? "" : "s", printable(home.native()));
  }

  std::uint64_t size() const override { return labels_.size(); }
  const std::vector<std::string>& class_names() const override { return names_; }
  int label(std::uint64_t sample) const override { return labels_[sample]; }
  std::unique_ptr<SampleReader> reader() const override {
    return std::make_unique<MemoryReader<Cifar10>>(*this);
  }
  std::string description() const override { return description_; }
  std::uint64_t manifest_hash() const override { return manifest_; }

  ImageView image(std::uint64_t sample) const {
    return {extent, std::span(pixels_).subspan(sample * image_bytes, image_bytes)};
  }

 private:
  void append(const fs::path& path, WorkProgress* progress);

  std::vector<std::string> names_;
  std::vector<std::uint8_t> labels_, pixels_;
  std::uint64_t manifest_ = 0;
  std::string description_;
};

void Cifar10::append(const fs::path& path, WorkProgress* progress) {
  at(progress, Work::index, path.native());
  std::vector<std::uint8_t> bytes;
  read_file(path, bytes, progress);
  if (bytes.size() % record_bytes != 0)
    fail_cifar10(path,
                 fmt::format("{} bytes are no whole number of records of {}; is the file complete, "
                             "and the binary version?",
                             bytes.size(), record_bytes));
  const std::size_t records = bytes.size() / record_bytes, first = labels_.size();
  pixels_.resize((first + records) * image_bytes);
  for (std::size_t r = 0; r < records; ++r) {
    const std::uint8_t* record = &bytes[r * record_bytes];
    if (record[0] >= usual_names.size())
      fail_cifar10(path,
                   fmt::format("label {} in record {}; CIFAR-10 has labels 0 to 9", record[0], r));
    labels_.push_back(record[0]);
    interleave(record + 1, &pixels_[(first + r) * image_bytes]);
  }
  manifest_ = hash_text(path.filename().native(), manifest_);
  manifest_ = hash_bytes(std::as_bytes(std::span(labels_).subspan(first)), manifest_);
}

}  // namespace

std::unique_ptr<Dataset> open_cifar10(const std::string& directory, Split split,
                                      WorkProgress* progress) try {
  return std::make_unique<Cifar10>(directory, split, progress);
} catch (const fs::filesystem_error& failure) {
  fail_cifar10(failure.path1(), failure.code().message());
}

}  // namespace ringtrain::io
