#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <memory>
#include <system_error>

#include "io/dataset/class_names.hpp"
#include "io/dataset/datasets.hpp"
#include "io/dataset/image_listing.hpp"
#include "io/dataset/val_split.hpp"
#include "io/files/file_bytes.hpp"
#include "ringtrain/base/hash.hpp"
#include "ringtrain/base/text.hpp"

namespace ringtrain::io {
namespace {

namespace fs = std::filesystem;

bool is_there(const fs::path& path) {
  return retry_listing(path, [&] { return fs::exists(path); });
}

std::vector<std::string> class_names_in(const fs::path& directory, WorkProgress* progress) {
  std::vector<std::string> names;
  for (const FolderEntry& entry : entries_of(directory, progress)) {
    if (entry.is_link && !is_there(entry.path))
      fail_images(entry.path,
                  "the link leads nowhere: without that class others would have its "
                  "label; mend or remove the link");
    if (entry.is_link && entry.is_folder && leads_back(entry.path))
      fail_images(entry.path,
                  "the link leads to a folder that holds it, and is no class; remove the link");
    if (entry.is_folder) names.push_back(entry.path.filename());
  }
  if (names.empty())
    fail_images(directory,
                "no class directories there; images belong in train/<class>/ and val/<class>/");
  return names;
}

bool equal_in_any_case(std::string_view a, std::string_view b) {
  return std::ranges::equal(
      a, b, [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

/// The folders of a data set, by what they are for.
struct SplitFolders {
  fs::path training, evaluation;  // empty: there is none
  std::vector<std::string> unused;
};

/// Takes the first of `folders` that is called `name`: by these very letters, else in any case.
fs::path take_called(std::string_view name, std::vector<fs::path>& folders) {
  const auto exactly = [&](const fs::path& folder) { return folder.filename().native() == name; };
  const auto nearly = [&](const fs::path& folder) {
    return equal_in_any_case(folder.filename().native(), name);
  };
  auto found = std::ranges::find_if(folders, exactly);
  if (found == folders.end()) found = std::ranges::find_if(folders, nearly);
  if (found == folders.end()) return {};
  const fs::path taken = std::move(*found);
  folders.erase(found);
  return taken;
}

SplitFolders split_folders(const fs::path& directory, WorkProgress* progress) {
  std::vector<fs::path> folders;
  for (const FolderEntry& entry : entries_of(directory, progress))
    if (entry.is_folder) folders.push_back(entry.path);
  SplitFolders splits{take_called("train", folders), {}, {}};
  for (const char* name : {"val", "valid", "validation", "test"})
    if (splits.evaluation.empty()) splits.evaluation = take_called(name, folders);
  for (const fs::path& folder : folders)
    splits.unused.push_back(printable(folder.filename().native()) + "/");
  return splits;
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

constexpr std::string_view no_such_class =
    "training has no such class, so its label is unknown (images belong in <class>/<image>)";

// For the log.
constexpr std::string_view labels_by_place =
    "; no training part and no checkpoint names the classes: labels are its own folders in order";

class Images final : public EncodedDataset {
 public:
  /// Those of `home`; a class's label is its place in `names`. With `options.val_split` those of
  /// `split` alone.
  Images(const fs::path& home, std::vector<std::string> names, Split split,
         const DatasetOptions& options);

  std::uint64_t size() const override { return files_.size(); }
  const std::vector<std::string>& class_names() const override { return names_; }
  int label(std::uint64_t sample) const override { return labels_[sample]; }
  std::string description() const override;
  /// What was left out, for the log: empty, or begins with "; ".
  std::string left_out() const { return lister_.left_out(); }
  /// Where labels are of wnids, for the log: so, and which have no images.
  std::string labels_text() const;
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
  std::string name(std::uint64_t sample) const override { return path(sample); }

 private:
  std::string path(std::uint64_t sample) const {
    return (home_ / names_[labels_[sample]] / files_[sample]).native();
  }
  void append(const fs::path& directory, int label);

  const fs::path home_;
  const std::vector<std::string> names_;
  const Split split_;
  const std::optional<ValSplit> val_split_;
  ImageLister lister_;
  std::size_t classes_met_ = 0;
  NameList files_;
  std::vector<std::int32_t> labels_;
  std::uint64_t manifest_ = 0;
};

Images::Images(const fs::path& home, std::vector<std::string> names, Split split,
               const DatasetOptions& options)
    : EncodedDataset(options.max_pixels),
      home_(home),
      names_(std::move(names)),
      split_(split),
      val_split_(options.val_split),
      lister_(options.progress) {
  const LabelsByName labels(names_, names_ == options.wnids ? no_such_wnid : no_such_class);
  for (const std::string& name : class_names_in(home_, options.progress)) {
    const auto [label, why_not] = labels.find(name);
    if (!why_not.empty()) fail_images(home_ / name, why_not);
    append(home_ / name, label);
  }
}

void Images::append(const fs::path& directory, int label) {
  std::vector<std::string> files;
  std::vector<std::uint64_t> sizes;
  lister_.list(directory, [&](const std::string& name, std::uint64_t bytes) {
    files.push_back(name);
    sizes.push_back(bytes);
  });
  if (files.empty())
    fail_images(directory, "the class has no images, in it or in its folders" + left_out());
  ++classes_met_;
  std::vector<bool> for_evaluation(files.size(), split_ == Split::evaluation);
  if (val_split_) for_evaluation = drawn_for_evaluation(files, names_[label], *val_split_);
  for (std::size_t i = 0; i < files.size(); ++i) {
    if (for_evaluation[i] != (split_ == Split::evaluation)) continue;
    files_.add(files[i]);
    labels_.push_back(label);
    manifest_ = hash_text(files[i], manifest_);
    manifest_ = hash_text(fmt::format("{} {}", label, sizes[i]), manifest_);
  }
}

std::string Images::labels_text() const {
  constexpr std::size_t most_named = 3;
  std::vector<bool> met(names_.size(), false);
  for (const std::int32_t label : labels_) met[label] = true;
  std::vector<std::string> missing;
  for (std::size_t label = 0; label < names_.size(); ++label)
    if (!met[label]) missing.push_back(names_[label]);
  const std::size_t count = missing.size();
  missing.resize(std::min(count, most_named));
  return "; labels are those of the network's wnids" +
         (count == 0 ? ""
                     : fmt::format(", of which {} have no images ({}{})", count,
                                   fmt::join(missing, ", "), count > most_named ? ", ..." : ""));
}

std::string Images::description() const {
  const std::string met = classes_met_ < names_.size()
                              ? fmt::format("{} of {}", classes_met_, names_.size())
                              : fmt::format("{}", names_.size());
  return fmt::format("images: {} files of {} classes in {} of {}{}", size(), met,
                     plural(lister_.folders(), "folder"), printable(home_.native()),
                     val_split_ ? fmt::format(", by --val-split {}", val_split_->share) : "");
}

}  // namespace

std::unique_ptr<EncodedDataset> open_images(const std::string& directory, Split split,
                                            const DatasetOptions& options) try {
  at(options.progress, Work::list, directory);
  if (!options.labels_file.empty()) return open_labelled(directory, split, options);
  const SplitFolders folders = split_folders(directory, options.progress);
  const bool trains = split == Split::training;
  const bool divides = options.val_split && !options.elsewhere && folders.evaluation.empty();
  if (options.val_split && options.val_split->required && !divides && !options.elsewhere)
    throw Error(Exit::usage, "--val-split with images:" + printable(directory),
                printable(folders.evaluation.filename().native()) +
                    "/ there is what is evaluated on; leave --val-split out");
  if (divides && folders.training.empty() && folders.unused.empty())
    fail_images(directory, "no class directories there; images belong in <class>/");
  const bool bare =
      (options.elsewhere || divides) && folders.training.empty() && !folders.unused.empty();
  if (trains && folders.training.empty() && !bare)
    fail_images(directory,
                "no directory train/ there, which holds <class>/<image>; where classes lie in it "
                "themselves, add --val-split 0.2, the share to evaluate on");
  const std::string unused = trains || folders.unused.empty()
                                 ? ""
                                 : fmt::format("not used: {}", fmt::join(folders.unused, ", "));
  if (divides && !trains && options.val_split->share == 0) return nullptr;
  if (!trains && !divides && folders.evaluation.empty() && !bare) {
    if (!unused.empty())
      options.tell(
          fmt::format("images: no val/, valid/, validation/ or test/ in {} to evaluate on; {}",
                      printable(directory), unused));
    return nullptr;
  }
  const fs::path home = bare                ? fs::path(directory)
                        : trains || divides ? folders.training
                                            : folders.evaluation;
  const bool alone = folders.training.empty() || options.elsewhere;
  auto names = class_names_in(alone ? home : folders.training, options.progress);
  const bool learned =
      alone ? !trains && !options.class_names.empty()
            : !trains && options.only_evaluated &&
                  has_all(options.class_names, class_names_in(home, options.progress));
  const bool by_wnid = !options.wnids.empty() && are_wnids(names);
  if (by_wnid)
    names = options.wnids;
  else if (learned)
    names = options.class_names;
  const bool guesses = !trains && !divides && alone && !by_wnid && !learned;
  DatasetOptions of_images = options;
  if (!divides) of_images.val_split.reset();
  auto images = std::make_unique<Images>(home, std::move(names), split, of_images);
  if (images->size() == 0)
    fail_images(home, fmt::format("--val-split {} leaves no image to {} on: classes of one image "
                                  "are trained on",
                                  options.val_split->share, trains ? "train" : "evaluate"));
  const bool tells_unused = !unused.empty() && !bare;
  options.tell(
      fmt::format("{}, to {} on{}{}{}{}", images->description(), trains ? "train" : "evaluate",
                  by_wnid   ? images->labels_text()
                  : guesses ? std::string(labels_by_place)
                            : "",
                  images->left_out(), tells_unused ? "; " : "", tells_unused ? unused : ""));
  return images;
} catch (const fs::filesystem_error& failure) {
  fail_images(failure.path1(), failure.code().message());
}

}  // namespace ringtrain::io
