#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <set>

#include "io/dataset/datasets.hpp"
#include "io/dataset/shards/sharded_dataset.hpp"
#include "io/files/tfrecord.hpp"
#include "io/image/decoder.hpp"
#include "ringtrain/base/text.hpp"

namespace ringtrain::io {
namespace {

constexpr std::array<std::string_view, 3> endings{"", ".tfrecord", ".tfrecords"};
constexpr std::array<std::string_view, 1> training_split{"train"};
constexpr std::array<std::string_view, 3> evaluation_splits{"validation", "val", "test"};
constexpr int least_threads = 8;  // they wait for the file system more than they compute

struct Opened {
  std::vector<ShardFile> files;
  ShardIndex index;
};

TfrecordShard index_file(const std::string& path, WorkProgress* progress) {
  FileSource file(path, progress);
  try {
    return index_tfrecord(file);
  } catch (const Undecodable& failure) {
    throw Error(Exit::data, "read TFRecords in " + printable(path), failure.what());
  }
}

std::string path_of(const std::string& directory, const std::vector<ShardFile>& files,
                    const ShardIndex& index, std::size_t record) {
  const auto shard = std::ranges::upper_bound(index.ends, record) - index.ends.begin();
  return directory + "/" + files[shard].name;
}

/// Whether the label of a record can be relied on. The walk through a shard verifies none.
bool is_whole(const std::string& path, const Record& record) {
  FileSource file(path);
  return record.offset <= file.size() && record.bytes <= file.size() - record.offset &&
         is_whole_tfrecord(file.at({record.offset, record.bytes}));
}

// The first and the last label say what the classes are: a damaged one must not move or add any.
void verify_extremes(const std::string& directory, const std::vector<ShardFile>& files,
                     ShardIndex& index, WorkProgress* progress) {
  auto& records = index.table.records;
  const auto no_label_last = [](const Record& r) { return static_cast<std::uint32_t>(r.label); };
  const auto verify = [&](const auto& find) {
    for (auto found = find(); found != records.end() && found->label >= 0; found = find()) {
      const std::string path = path_of(directory, files, index, found - records.begin());
      at(progress, Work::index, path);
      if (is_whole(path, *found)) return;
      found->label = -1;
    }
  };
  verify([&] { return std::ranges::min_element(records, {}, no_label_last); });
  verify([&] { return std::ranges::max_element(records, {}, &Record::label); });
}

/// Names of labels, from the first record that has one.
std::vector<std::string> names_of(const std::vector<TfrecordShard>& shards,
                                  const std::vector<Record>& records) {
  std::map<std::int32_t, std::string> names;
  for (const TfrecordShard& shard : shards)
    names.insert(shard.class_names.begin(), shard.class_names.end());
  std::int32_t last = -1;
  for (const Record& record : records) last = std::max(last, record.label);
  std::vector<std::string> all;
  all.reserve(static_cast<std::size_t>(last) + 1);  // one record may have the largest label
  for (std::int32_t label = 0; label <= last; ++label)
    all.push_back(names.contains(label) ? names[label] : std::to_string(label));
  return all;
}

ShardIndex make_index(const std::string& directory, const std::vector<ShardFile>& files,
                      const DatasetOptions& options) {
  std::vector<TfrecordShard> shards(files.size());
  each_shard(
      files.size(), std::max(options.threads, least_threads),
      [&](std::size_t i) {
        shards[i] = index_file(directory + "/" + files[i].name, options.progress);
      },
      [&](std::size_t done) {
        options.tell(fmt::format("indexing {}: {} of {} shards done", printable(directory), done,
                                 files.size()));
      },
      [&](std::size_t i) { at(options.progress, Work::index, directory + "/" + files[i].name); });
  ShardIndex index;
  for (const TfrecordShard& shard : shards) {
    auto& records = index.table.records;
    records.insert(records.end(), shard.records.begin(), shard.records.end());
    index.ends.push_back(records.size());
  }
  verify_extremes(directory, files, index, options.progress);
  index.table.class_names = names_of(shards, index.table.records);
  return index;
}

Opened open_split(const std::string& directory, std::span<const std::string_view> splits,
                  const DatasetOptions& options) {
  Opened opened{find_shards(directory, splits, endings, options.progress), {}};
  if (opened.files.empty()) return opened;
  opened.index = cached_index(directory, opened.files, options,
                              [&] { return make_index(directory, opened.files, options); });
  return opened;
}

// The label of the first class. ImageNet's shards keep 0 for "background", of which there are no
// images.
std::int32_t first_label(const ShardIndex& training) {
  const auto is_zero = [](const Record& record) { return record.label == 0; };
  return std::ranges::any_of(training.table.records, is_zero) ? 0 : 1;
}

/// How the labels of an evaluation without training are read.
struct Learned {
  std::int32_t first = 0;
  bool is_guess = false;
};

/// How many labels have the names that a network learned, counted from `first`.
std::ptrdiff_t matches(const ShardIndex& evaluation, const std::vector<std::string>& learned,
                       std::int32_t first) {
  std::set<std::int32_t> labels;
  for (const Record& record : evaluation.table.records) labels.insert(record.label);
  return std::ranges::count_if(labels, [&](std::int32_t label) {
    return label >= first && label - first < std::ssize(learned) &&
           learned[label - first] == evaluation.table.class_names[label];
  });
}

/// Labels that the evaluation lacks say nothing of where they begin: names do, else their number.
Learned first_learned(const ShardIndex& evaluation, const std::vector<std::string>& learned) {
  const auto from_0 = matches(evaluation, learned, 0), from_1 = matches(evaluation, learned, 1);
  if (from_0 != from_1) return {.first = from_0 > from_1 ? 0 : 1};
  const std::int32_t first = first_label(evaluation);
  const bool has_last = evaluation.table.class_names.size() == learned.size() + 1;
  return {.first = first, .is_guess = first > 0 && !has_last};
}

[[noreturn]] void fail_at_label(const std::string& directory, const Opened& opened,
                                std::size_t record, std::int32_t first, std::size_t classes) {
  const auto& [offset, bytes, label] = opened.index.table.records[record];
  throw Error(
      Exit::data,
      "read TFRecords in " + printable(path_of(directory, opened.files, opened.index, record)),
      fmt::format("the record with data at byte {} has the label {}, but training has {} to "
                  "{}; are the shards of one data set?",
                  offset, label, first, classes + first - 1));
}

/// Makes classes of labels, as training has them.
void count_from(std::int32_t first, std::vector<std::string> names, const std::string& directory,
                Opened& opened) {
  auto& records = opened.index.table.records;
  for (std::size_t i = 0; i < records.size(); ++i) {
    std::int32_t& label = records[i].label;
    if (label < 0) continue;  // damaged
    if (label >= first && label - first < std::ssize(names))
      label -= first;
    else if (is_whole(path_of(directory, opened.files, opened.index, i), records[i]))
      fail_at_label(directory, opened, i, first, names.size());
    else
      label = -1;
  }
  opened.index.table.class_names = std::move(names);
}

}  // namespace

std::unique_ptr<EncodedDataset> open_tfrecord(const std::string& directory, Split split,
                                              const DatasetOptions& options) {
  Opened training = open_split(directory, training_split, options);
  const bool alone = training.files.empty() && split == Split::evaluation;
  if (alone) training = open_split(directory, evaluation_splits, options);
  if (training.files.empty())
    throw Error(
        Exit::data, "read TFRecords in " + printable(directory),
        "no shards there; they are named train-00000-of-01024 and so on, and for evaluation "
        "validation-00000-of-00128");
  if (training.index.table.class_names.empty())
    throw Error(Exit::data, "read TFRecords in " + printable(directory),
                "every record of training is damaged; copy the files again");
  const auto [first, is_guess] = alone ? first_learned(training.index, options.class_names)
                                       : Learned{.first = first_label(training.index)};
  const bool learned = alone && !options.class_names.empty();
  auto names = learned ? options.class_names : std::move(training.index.table.class_names);
  if (first > 0 && !learned) names.erase(names.begin());
  Opened opened = split == Split::training || alone
                      ? std::move(training)
                      : open_split(directory, evaluation_splits, options);
  if (opened.files.empty()) return nullptr;
  count_from(first, std::move(names), directory, opened);
  auto data = make_sharded_dataset({"tfrecord", directory, std::move(opened.files),
                                    std::move(opened.index), unpack_tfrecord, first},
                                   options.max_pixels);
  if (split == Split::training || alone)
    options.tell(fmt::format("{}, labels from {}{}", data->description(), first,
                             is_guess
                                 ? "; that is a guess: no record has label 0, and neither training "
                                   "shards nor a checkpoint say where they begin"
                                 : ""));
  return data;
}

}  // namespace ringtrain::io
