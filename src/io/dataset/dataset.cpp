#include "ringtrain/io/dataset/dataset.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "io/dataset/datasets.hpp"
#include "ringtrain/base/text.hpp"

namespace ringtrain::io {
namespace {

const std::vector<std::string> kinds{"synthetic", "shapes",   "cifar10", "mnist",
                                     "images",    "tfrecord", "records"};

[[noreturn]] void reject(std::string_view spec, std::string_view reason) {
  throw Error(Exit::usage, fmt::format("--data {}", printable(spec)), reason);
}

// What else people type for a folder of images: its path, or its kind in other trainers. With a
// slash, too, timm names data sets that are to be fetched.
std::string images_meant(std::string_view spec, std::string_view kind) {
  const std::vector<std::string> fetched{"hfds", "hfids", "tfds", "wds", "torch"};
  const std::vector<std::string> folders{"imagefolder", "image_folder", "folder", "imagenet"};
  const std::size_t slash = spec.find('/');
  if (std::ranges::count(fetched, spec.substr(0, slash)) > 0) return "; train never downloads";
  if (kind.find('/') != kind.npos || kind.starts_with('.') || kind.starts_with('~'))
    return fmt::format("; did you mean images:{}?", printable(spec));
  if (kind.size() < spec.size() && std::ranges::count(folders, kind) > 0)
    return fmt::format("; did you mean images:{}?", printable(spec.substr(kind.size() + 1)));
  return "";
}

[[noreturn]] void reject_kind(std::string_view spec, std::string_view kind) {
  const std::string images = images_meant(spec, kind);
  reject(spec,
         "there is no such kind of data; known are synthetic, shapes, cifar10:DIR, "
         "mnist:DIR, images:DIR, tfrecord:DIR and records:DIR" +
             (images.empty() ? did_you_mean(kind, kinds) : images));
}

struct Parts {
  std::string kind, directory;
  bool has_directory;
};

Parts parts_of(std::string_view spec) {
  const auto colon = spec.find(':');
  if (colon == spec.npos) return {std::string(spec), "", false};
  return {std::string(spec.substr(0, colon)), std::string(spec.substr(colon + 1)), true};
}

}  // namespace

Image Dataset::read(std::uint64_t sample) const {
  const auto one = reader();
  const Extent extent = one->open(sample);
  const ImageView view = one->pixels({.extent = extent}).pixels;
  return {view.extent, {view.pixels.begin(), view.pixels.end()}};
}

void expect_kind_of_data(std::string_view spec) {
  const auto [kind, directory, has_directory] = parts_of(spec);
  if (std::ranges::find(kinds, kind) == kinds.end()) reject_kind(spec, kind);

  const bool generated = kind == "synthetic" || kind == "shapes";
  if (generated && has_directory) reject(spec, fmt::format("'{}' takes no directory", kind));
  if (!generated && directory.empty())
    reject(spec, fmt::format("name the directory: {}:DIR", kind));
}

std::unique_ptr<Dataset> open_dataset(std::string_view spec, Split split,
                                      const DatasetOptions& options) {
  expect_kind_of_data(spec);
  const auto [kind, directory, has_directory] = parts_of(spec);
  if (!options.labels_file.empty() && kind != "images")
    reject(spec, "--labels is of images:DIR alone; leave it out");
  if (options.val_split && options.val_split->required && kind != "images")
    reject(spec, "--val-split divides images:DIR alone; leave it out");
  if (kind == "synthetic") return open_synthetic(split, options);
  if (kind == "shapes") return open_shapes(split);
  if (kind == "cifar10") return open_cifar10(directory, split, options.progress);
  if (kind == "mnist") return open_mnist(directory, split, options.progress);
  return open_encoded(spec, split, options);
}

std::unique_ptr<Dataset> open_to_predict(const std::vector<std::string>& paths,
                                         const std::vector<std::string>& names,
                                         const DatasetOptions& options) {
  const std::string& first = paths.front();
  const bool one = paths.size() == 1;
  const auto is_array = [](const std::string& path) { return path.ends_with(".npy"); };
  if (!one && std::ranges::any_of(paths, is_array))
    throw Error(Exit::usage, "--predict", "takes one array at a time, and nothing beside it");
  DatasetOptions of_paths = options;
  of_paths.class_names = names;
  std::error_code unknown;
  const bool is_path = first.find(':') == first.npos && std::filesystem::exists(first, unknown);
  const bool takes_paths = !one || is_array(first) || is_path ||
                           std::ranges::find(kinds, parts_of(first).kind) == kinds.end();
  if (takes_paths && !options.labels_file.empty())
    throw Error(Exit::usage, "--labels with --predict PATH",
                "PATHs have the labels of their folders; say --predict images:DIR, or leave it "
                "out");
  if (one && is_array(first)) return open_numpy(first, of_paths);
  if (takes_paths) return open_paths(paths, of_paths);
  auto dataset = open_dataset(first, Split::evaluation, options);
  if (!dataset)
    throw Error(Exit::data, "--predict " + printable(first),
                "has no part for evaluation; name a folder without images: to predict all in it");
  return dataset;
}

std::unique_ptr<EncodedDataset> open_encoded(std::string_view spec, Split split,
                                             const DatasetOptions& options) {
  const auto [kind, directory, has_directory] = parts_of(spec);
  if (std::ranges::find(kinds, kind) == kinds.end())
    return open_images(std::string(spec), split, options);
  if (kind == "images") return open_images(directory, split, options);
  if (kind == "tfrecord") return open_tfrecord(directory, split, options);
  if (kind == "records") return open_records(directory, split, options);
  throw Error(Exit::usage, "--pack " + printable(spec),
              "there are no encoded images; known are DIR, images:DIR, tfrecord:DIR, records:DIR");
}

bool too_many_unreadable(std::uint64_t unreadable, std::uint64_t samples) {
  constexpr std::uint64_t always_tolerated = 10, one_of = 1000;
  return unreadable > always_tolerated && unreadable > samples / one_of;
}

void check_enough(const Dataset& dataset, int global_batch) {
  if (dataset.size() >= static_cast<std::uint64_t>(global_batch)) return;
  throw Error(Exit::data, "train on " + dataset.description(),
              fmt::format("one step takes {} images, on all ranks together, more than there are; "
                          "use fewer ranks, a smaller --batch or a smaller --accumulate",
                          global_batch));
}

}  // namespace ringtrain::io
