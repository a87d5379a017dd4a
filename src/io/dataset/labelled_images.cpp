#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <system_error>

#include "io/dataset/class_names.hpp"
#include "io/dataset/datasets.hpp"
#include "io/dataset/image_listing.hpp"
#include "io/dataset/val_split.hpp"
#include "io/files/csv.hpp"
#include "io/files/file_bytes.hpp"
#include "ringtrain/base/hash.hpp"
#include "ringtrain/base/text.hpp"

namespace ringtrain::io {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t usual_classes = 1000;  // ImageNet's, of few images, too

[[noreturn]] void fail_labels(const std::string& file, std::string_view reason) {
  throw Error(Exit::data, "--labels " + printable(file), reason);
}

struct LabelledFile {
  std::string path, label;
};

std::string in_lower_case(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

/// Which column is called so; nothing where none is.
std::optional<std::size_t> column(const std::vector<std::string>& head,
                                  const std::set<std::string>& names) {
  for (std::size_t c = 0; c < head.size(); ++c)
    if (names.contains(in_lower_case(head[c]))) return c;
  return std::nullopt;
}

std::vector<LabelledFile> read_labels(const std::string& file, WorkProgress* progress) {
  at(progress, Work::open, file);
  std::vector<std::uint8_t> bytes;
  read_large_file(file, bytes, progress);
  std::vector<std::vector<std::string>> rows;
  try {
    rows = csv_rows({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  } catch (const BadValue& fault) {
    fail_labels(file, fault.what());
  }
  if (rows.empty()) fail_labels(file, "holds no rows of path,label");
  const auto paths =
      column(rows[0], {"path", "file", "filename", "file_name", "image", "image_path"});
  const auto labels = column(rows[0], {"label", "class", "class_name", "category", "target"});
  const bool has_head = paths || labels;
  const std::size_t path = paths.value_or(0), label = labels.value_or(path == 0 ? 1 : 0);
  std::vector<LabelledFile> files;
  std::map<fs::path, std::size_t> seen;
  for (std::size_t r = has_head ? 1 : 0; r < rows.size(); ++r) {
    if (rows[r].size() <= std::max(path, label) || rows[r][path].empty() || rows[r][label].empty())
      fail_labels(file, fmt::format("row {} has no path and label: {}", r + 1,
                                    brief(fmt::format("{}", fmt::join(rows[r], ",")))));
    const auto [first, is_new] = seen.emplace(fs::path(rows[r][path]).lexically_normal(), r + 1);
    if (!is_new)
      fail_labels(file, fmt::format("rows {} and {} are both of {}: an image has one label, and is "
                                    "trained on or evaluated on; leave one of them out",
                                    first->second, r + 1, brief(rows[r][path])));
    files.push_back({std::move(rows[r][path]), std::move(rows[r][label])});
  }
  return files;
}

/// Labels that are numbers are those; else names, in the order of their bytes.
std::vector<std::string> names_of(const std::vector<LabelledFile>& files, const std::string& file,
                                  const fs::path& directory) {
  if (auto named = names_in_file(directory / "classes.txt"); !named.empty()) return named;
  std::set<std::string> names;
  std::size_t largest = 0;
  bool numbers = true;
  for (const LabelledFile& one : files) {
    names.insert(one.label);
    const auto number = number_in<std::size_t>(one.label);
    numbers = numbers && number;
    if (number) largest = std::max(largest, *number);
  }
  if (!numbers) return {names.begin(), names.end()};
  if (largest >= std::max(usual_classes, files.size()))
    fail_labels(file, fmt::format("label {} is not one of classes counted from 0, as the file has "
                                  "{} rows: write names, or list the classes in classes.txt",
                                  largest, files.size()));
  std::vector<std::string> all(largest + 1);
  for (std::size_t label = 0; label < all.size(); ++label) all[label] = std::to_string(label);
  return all;
}

/// What the first folder of a path says it is for.
std::optional<Split> part_of(const std::string& path) {
  const fs::path whole(path);
  if (!whole.has_parent_path()) return std::nullopt;
  const std::string first = in_lower_case(whole.begin()->native());
  if (first == "train") return Split::training;
  for (const char* name : {"val", "valid", "validation", "test"})
    if (first == name) return Split::evaluation;
  return std::nullopt;
}

class LabelledImages final : public EncodedDataset {
 public:
  LabelledImages(const std::string& directory, std::vector<std::string> names,
                 const DatasetOptions& options)
      : EncodedDataset(options.max_pixels), home_(directory), names_(std::move(names)) {}

  void add(const std::string& path, int label) {
    files_.push_back(path);
    labels_.push_back(label);
    manifest_ = hash_text(fmt::format("{} {}", path, label), manifest_);
  }

  std::uint64_t size() const override { return files_.size(); }
  const std::vector<std::string>& class_names() const override { return names_; }
  int label(std::uint64_t sample) const override { return labels_[sample]; }
  std::string description() const override {
    return fmt::format("images: {} files of {} classes in {}, labels by --labels", size(),
                       names_.size(), printable(home_.native()));
  }
  std::uint64_t manifest_hash() const override { return manifest_; }
  std::span<const std::uint8_t> encoded(std::uint64_t sample, std::vector<std::uint8_t>& buffer,
                                        ReadRetries& retries) const override try {
    read_file(name(sample), buffer, retries);
    return buffer;
  } catch (const NoAccess& failure) {
    throw Error(Exit::data, failure.what(),
                "nothing takes the place of an image that is gone or may not be read: mend that, "
                "or take its row out of --labels");
  }
  std::string place(std::uint64_t sample) const override { return printable(name(sample)); }
  std::string name(std::uint64_t sample) const override {
    return (home_ / files_[sample]).native();
  }

 private:
  const fs::path home_;
  const std::vector<std::string> names_;
  std::vector<std::string> files_;
  std::vector<std::int32_t> labels_;
  std::uint64_t manifest_ = 0;
};

std::vector<bool> drawn_rows(const std::vector<LabelledFile>& rows, const ValSplit& split) {
  std::map<std::string, std::vector<std::size_t>> of_classes;
  for (std::size_t r = 0; r < rows.size(); ++r) of_classes[rows[r].label].push_back(r);
  std::vector<bool> drawn(rows.size());
  for (const auto& [label, own] : of_classes) {
    std::vector<std::string> names;
    for (const std::size_t r : own) names.push_back(rows[r].path);
    const std::vector<bool> of_class = drawn_for_evaluation(names, label, split);
    for (std::size_t i = 0; i < own.size(); ++i) drawn[own[i]] = of_class[i];
  }
  return drawn;
}

/// Whether each row is of `split`: by its folder, else by --val-split, else it trains.
std::vector<bool> rows_of(Split split, const std::vector<LabelledFile>& rows,
                          const std::string& directory, const DatasetOptions& options) {
  const bool has_parts = std::ranges::any_of(
      rows, [](const LabelledFile& row) { return part_of(row.path) == Split::evaluation; });
  if (has_parts && options.val_split && options.val_split->required)
    throw Error(Exit::usage, "--val-split with images:" + printable(directory),
                "rows of --labels begin with val/ or the like, which is what is evaluated on; "
                "leave --val-split out");
  std::vector<bool> of_evaluation(rows.size(), options.elsewhere);
  if (has_parts)
    for (std::size_t r = 0; r < rows.size(); ++r)
      of_evaluation[r] = part_of(rows[r].path) == Split::evaluation;
  else if (options.val_split && !options.elsewhere)
    of_evaluation = drawn_rows(rows, *options.val_split);
  if (split == Split::training) of_evaluation.flip();
  return of_evaluation;
}

}  // namespace

std::unique_ptr<EncodedDataset> open_labelled(const std::string& directory, Split split,
                                              const DatasetOptions& options) {
  const std::vector<LabelledFile> rows = read_labels(options.labels_file, options.progress);
  const bool learned = split == Split::evaluation && !options.class_names.empty();
  std::vector<std::string> names =
      learned ? options.class_names : names_of(rows, options.labels_file, directory);
  const LabelsByName labels(names, "is no class of the training");
  auto images = std::make_unique<LabelledImages>(directory, names, options);
  const std::vector<bool> own = rows_of(split, rows, directory, options);
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const auto [label, why_not] = labels.find(rows[r].label);
    if (!why_not.empty())
      fail_labels(options.labels_file,
                  fmt::format("{}, of {}: {}", brief(rows[r].label), brief(rows[r].path), why_not));
    if (own[r]) images->add(rows[r].path, label);
  }
  if (images->size() == 0 && split == Split::evaluation) return nullptr;
  if (images->size() == 0) fail_labels(options.labels_file, "has no row of an image to train on");
  options.tell(fmt::format("{}, to {} on", images->description(),
                           split == Split::training ? "train" : "evaluate"));
  return images;
}

}  // namespace ringtrain::io
