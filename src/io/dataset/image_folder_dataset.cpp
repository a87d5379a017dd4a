#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <system_error>

#include "io/dataset/datasets.hpp"
#include "io/files/file_bytes.hpp"
#include "ringtrain/base/hash.hpp"
#include "ringtrain/base/text.hpp"

namespace ringtrain::io {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail_images(const fs::path& path, std::string_view reason) {
  throw Error(Exit::data, "read images in " + printable(path.native()), reason);
}

/// What `wanted` accepts of a directory, sorted by bytes. Links are followed, hidden names skipped.
template <class Wanted>
std::vector<fs::directory_entry> entries_of(const fs::path& directory, WorkProgress* progress,
                                            Wanted wanted) {
  at(progress, Work::list, directory.native());
  auto entries = retry_listing(directory, [&] {
    std::vector<fs::directory_entry> found;
    for (const auto& entry : fs::directory_iterator(directory)) {
      if (!entry.path().filename().native().starts_with('.') && wanted(entry))
        found.push_back(entry);
      advance(progress);
    }
    return found;
  });
  std::ranges::sort(
      entries, {}, [](const auto& entry) -> const auto& { return entry.path().native(); });
  return entries;
}

std::vector<std::string> class_names_in(const fs::path& directory, WorkProgress* progress) {
  std::vector<std::string> names;
  const auto is_directory = [](const auto& e) {
    if (e.is_symlink() && !e.exists())
      fail_images(e.path(),
                  "the link leads nowhere: without that class others would have its "
                  "label; mend or remove the link");
    return e.is_directory();
  };
  for (const auto& entry : entries_of(directory, progress, is_directory))
    names.push_back(entry.path().filename());
  if (names.empty())
    fail_images(directory,
                "no class directories there; images belong in train/<class>/ and val/<class>/");
  return names;
}

bool is_folder(const fs::path& path) {
  return retry_listing(path, [&] { return fs::is_directory(path); });
}

fs::path training_home(const fs::path& directory) {
  fs::path home = directory / "train";
  if (!is_folder(home))
    fail_images(directory, "no directory train/ there, which holds <class>/<image>");
  return home;
}

/// Empty where there is none.
fs::path evaluation_home(const fs::path& directory) {
  for (const char* name : {"val", "test"})
    if (is_folder(directory / name)) return directory / name;
  return {};
}

/// Many strings in one piece of memory: a data set may have millions of names.
class NameList {
 public:
  void add(std::string_view name) {
    text_ += name;
    ends_.push_back(text_.size());
  }
  std::size_t size() const { return ends_.size(); }
  std::string_view operator[](std::size_t i) const {
    const std::size_t begin = i == 0 ? 0 : ends_[i - 1];
    return std::string_view(text_).substr(begin, ends_[i] - begin);
  }

 private:
  std::string text_;
  std::vector<std::size_t> ends_;
};

std::uintmax_t size_for_manifest(const fs::directory_entry& file) {
  return retry_listing(file.path(), [&] {
    std::error_code none;
    const auto bytes = file.file_size(none);
    if (none && may_pass(none.value())) throw ReadFailure(none.value(), 0);
    if (none)
      fail_images(file.path(), none.message() + ": mend that, or take it out of the data set");
    return bytes;
  });
}

class Images final : public EncodedDataset {
 public:
  /// Those of `home`, with the labels that the classes have in `training`.
  Images(const fs::path& home, const fs::path& training, const DatasetOptions& options);

  std::uint64_t size() const override { return files_.size(); }
  const std::vector<std::string>& class_names() const override { return names_; }
  int label(std::uint64_t sample) const override { return labels_[sample]; }
  std::string description() const override {
    return fmt::format("images: {} files of {} classes in {}", size(), classes(),
                       printable(home_.native()));
  }
  std::uint64_t manifest_hash() const override { return manifest_; }

  std::span<const std::uint8_t> encoded(std::uint64_t sample, std::vector<std::uint8_t>& buffer,
                                        ReadRetries& retries) const override try {
    read_file(path(sample), buffer, retries);
    return buffer;
  } catch (const NoAccess& failure) {
    throw Error(
        Exit::data, failure.what(),
        "nothing takes the place of an image that is gone or may not be read: mend that, or "
        "take it out of the data set");
  }
  std::string place(std::uint64_t sample) const override { return printable(path(sample)); }

 private:
  std::string path(std::uint64_t sample) const {
    return (home_ / names_[labels_[sample]] / files_[sample]).native();
  }
  void append(const fs::path& directory, int label, WorkProgress* progress);

  const fs::path home_;
  const std::vector<std::string> names_;
  NameList files_;
  std::vector<std::int32_t> labels_;
  std::uint64_t manifest_ = 0;
};

Images::Images(const fs::path& home, const fs::path& training, const DatasetOptions& options)
    : EncodedDataset(options.max_pixels),
      home_(home),
      names_(class_names_in(training, options.progress)) {
  for (const std::string& name : class_names_in(home_, options.progress)) {
    const auto known = std::ranges::lower_bound(names_, name);
    if (known == names_.end() || *known != name)
      fail_images(home_ / name, "training has no such class, so its label is unknown");
    append(home_ / name, static_cast<int>(known - names_.begin()), options.progress);
  }
}

void Images::append(const fs::path& directory, int label, WorkProgress* progress) {
  const std::size_t before = files_.size();
  const auto is_file = [](const auto& e) { return !e.is_directory(); };
  for (const auto& file : entries_of(directory, progress, is_file)) {
    const std::string name = file.path().filename();
    files_.add(name);
    labels_.push_back(label);
    manifest_ = hash_text(name, manifest_);
    manifest_ = hash_text(fmt::format("{} {}", label, size_for_manifest(file)), manifest_);
    advance(progress);
  }
  if (files_.size() == before)
    fail_images(directory, "the class has no files (directories in it are not searched)");
}

}  // namespace

std::unique_ptr<EncodedDataset> open_images(const std::string& directory, Split split,
                                            const DatasetOptions& options) try {
  at(options.progress, Work::list, directory);
  const fs::path training = training_home(directory);
  const fs::path home = split == Split::training ? training : evaluation_home(directory);
  if (home.empty()) return nullptr;
  return std::make_unique<Images>(home, training, options);
} catch (const fs::filesystem_error& failure) {
  fail_images(failure.path1(), failure.code().message());
}

}  // namespace ringtrain::io
