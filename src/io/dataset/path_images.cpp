#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>
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
  int label_of(const std::string& folder);

  const std::vector<std::string> names_, wnids_;
  const LabelsByName by_name_, by_wnid_;
  std::map<std::string, int> labels_of_folders_;
  std::vector<std::string> files_;
  std::vector<std::int32_t> labels_;
  std::string left_out_;
  std::uint64_t manifest_ = 0;
};

// "photos/" is called photos, and "." as the folder is.
std::string own_name(const fs::path& folder) {
  fs::path named = folder.lexically_normal();
  if (!named.has_filename()) named = named.parent_path();  // it ends in a slash
  const fs::path name = named.filename();
  if (!name.empty() && name != "." && name != "..") return name;
  std::error_code unknown;
  return fs::weakly_canonical(folder.empty() ? "." : folder, unknown).filename();
}

PathImages::PathImages(const std::vector<std::string>& paths, const DatasetOptions& options)
    : EncodedDataset(options.max_pixels),
      names_(options.class_names),
      wnids_(options.wnids),
      by_name_(names_, "is no class"),
      by_wnid_(wnids_, "is no class") {
  ImageLister lister(options.progress, true);
  for (const std::string& path : paths) {
    at(options.progress, Work::list, path);
    std::error_code unknown;  // then it is read as a file, which says why it cannot be
    if (fs::is_directory(path, unknown))
      add_folder(path, lister);
    else
      add(path, label_of(own_name(fs::path(path).parent_path())));
  }
  left_out_ = lister.left_out();
  if (files_.empty())
    throw Error(Exit::data, "--predict " + brief(fmt::format("{}", fmt::join(paths, " "))),
                "there are no images" + left_out_);
}

// Many images share a folder, and a name that is no class is sought among all.
int PathImages::label_of(const std::string& folder) {
  const auto [known, is_new] = labels_of_folders_.try_emplace(folder, -1);
  if (is_new) known->second = by_name_.find(folder).label;
  if (is_new && known->second < 0) known->second = by_wnid_.find(folder).label;
  return known->second;
}

void PathImages::add_folder(const fs::path& folder, ImageLister& lister) {
  const int of_folder = label_of(own_name(folder));
  lister.list(folder, [&](const std::string& name, std::uint64_t) {
    int label = of_folder;
    for (const fs::path& inner : fs::path(name).parent_path())
      if (label < 0) label = label_of(inner.native());
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
