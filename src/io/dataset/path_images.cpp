#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <system_error>

#include "io/dataset/class_names.hpp"
#include "io/dataset/datasets.hpp"
#include "io/dataset/image_listing.hpp"
#include "io/files/file_bytes.hpp"
#include "ringtrain/base/hash.hpp"
#include "ringtrain/base/text.hpp"

namespace ringtrain::io {
namespace {

namespace fs = std::filesystem;

class PathImages final : public EncodedDataset {
 public:
  PathImages(const std::vector<std::string>& paths, const DatasetOptions& options);

  std::uint64_t size() const override { return files_.size(); }
  const std::vector<std::string>& class_names() const override { return names_; }
  int label(std::uint64_t sample) const override { return labels_[sample]; }
  std::string description() const override {
    return fmt::format("{}{}", plural(files_.size(), "image"), left_out_);
  }
  std::uint64_t manifest_hash() const override { return manifest_; }
  std::span<const std::uint8_t> encoded(std::uint64_t sample, std::vector<std::uint8_t>& buffer,
                                        ReadRetries& retries) const override {
    read_file(files_[sample], buffer, retries);
    return buffer;
  }
  std::string place(std::uint64_t sample) const override { return printable(files_[sample]); }
  std::string name(std::uint64_t sample) const override { return files_[sample]; }

 private:
  void add(const fs::path& file, int label) {
    files_.push_back(file.native());
    labels_.push_back(label);
    manifest_ = hash_text(fmt::format("{} {}", file.native(), label), manifest_);
  }
  void add_folder(const fs::path& folder, ImageLister& lister);

  const std::vector<std::string> names_;
  const LabelsByName by_name_;
  std::vector<std::string> files_;
  std::vector<std::int32_t> labels_;
  std::string left_out_;
  std::uint64_t manifest_ = 0;
};

// "photos/" is called photos, and "." as the folder is.
std::string own_name(const fs::path& folder) {
  std::error_code unknown;
  const fs::path whole = fs::weakly_canonical(folder, unknown);
  return (unknown ? folder : whole).filename();
}

PathImages::PathImages(const std::vector<std::string>& paths, const DatasetOptions& options)
    : EncodedDataset(options.max_pixels),
      names_(options.class_names),
      by_name_(names_, "is no class") {
  ImageLister lister(options.progress);
  for (const std::string& path : paths) {
    at(options.progress, Work::list, path);
    std::error_code unknown;  // then it is read as a file, which says why it cannot be
    if (fs::is_directory(path, unknown))
      add_folder(path, lister);
    else
      add(path, by_name_.find(own_name(fs::path(path).parent_path())).label);
  }
  left_out_ = lister.left_out();
  if (files_.empty())
    throw Error(Exit::data, "--predict " + brief(fmt::format("{}", fmt::join(paths, " "))),
                "there are no images" + left_out_);
}

void PathImages::add_folder(const fs::path& folder, ImageLister& lister) {
  const int of_folder = by_name_.find(own_name(folder)).label;
  lister.list(folder, [&](const std::string& name, std::uint64_t) {
    int label = of_folder;
    for (const fs::path& inner : fs::path(name).parent_path())
      if (label < 0) label = by_name_.find(inner.native()).label;
    add(folder / name, label);
  });
}

}  // namespace

std::unique_ptr<EncodedDataset> open_paths(const std::vector<std::string>& paths,
                                           const DatasetOptions& options) try {
  return std::make_unique<PathImages>(paths, options);
} catch (const fs::filesystem_error& failure) {
  fail_images(failure.path1(), failure.code().message());
}

}  // namespace ringtrain::io
