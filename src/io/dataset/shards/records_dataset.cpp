#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <memory>

#include "io/dataset/class_names.hpp"
#include "io/dataset/datasets.hpp"
#include "io/dataset/shards/sharded_dataset.hpp"
#include "io/files/records_file.hpp"
#include "io/image/decoder.hpp"
#include "ringtrain/base/text.hpp"

namespace ringtrain::io {
namespace {

constexpr std::array<std::string_view, 1> ending{".records"};
constexpr std::array<std::string_view, 1> train_split{"train"}, val_split{"val"};

struct RecordsFile {
  RecordsHead head;
  RecordTable table;
};

[[noreturn]] void fail_records(const std::string& path, std::string_view reason) {
  throw Error(Exit::data, "read records in " + printable(path), reason);
}

RecordsFile read(const std::string& path, WorkProgress* progress) {
  FileSource source(path, progress);
  try {
    const RecordsHead head = read_head(source);
    return {head, read_table(source, head)};
  } catch (const Undecodable& failure) {
    fail_records(path, failure.what());
  }
}

std::vector<RecordsFile> read_all(const std::string& directory, const std::vector<ShardFile>& files,
                                  const DatasetOptions& options) {
  std::vector<RecordsFile> read_files(files.size());
  each_shard(
      files.size(), options.threads,
      [&](std::size_t i) {
        read_files[i] = read(directory + "/" + files[i].name, options.progress);
      },
      [&](std::size_t done) {
        options.tell(fmt::format("opening {}: {} of {} shards done", printable(directory), done,
                                 files.size()));
      },
      [&](std::size_t i) { at(options.progress, Work::index, directory + "/" + files[i].name); });
  return read_files;
}

/// One index of all files, which must have been packed together, with these names.
ShardIndex join(const std::string& directory, const std::vector<ShardFile>& files,
                const std::vector<RecordsFile>& read_files,
                const std::vector<std::string>& class_names) {
  ShardIndex index;
  index.table.class_names = class_names;
  for (std::size_t i = 0; i < read_files.size(); ++i) {
    const auto& [head, table] = read_files[i];
    if (head.pack_id != read_files[0].head.pack_id || table.class_names != class_names)
      fail_records(
          directory + "/" + files[i].name,
          "packed from other data, or in another way, than the files beside it; pack all again");
    auto& records = index.table.records;
    records.insert(records.end(), table.records.begin(), table.records.end());
    index.ends.push_back(records.size());
  }
  return index;
}

/// The classes of which there are records.
std::vector<std::string> classes_met(const RecordTable& table) {
  std::vector<bool> met(table.class_names.size(), false);
  for (const Record& record : table.records) met[record.label] = true;
  std::vector<std::string> names;
  for (std::size_t label = 0; label < met.size(); ++label)
    if (met[label]) names.push_back(table.class_names[label]);
  return names;
}

/// Gives records the labels that their classes have in `names`. `unknown` as of LabelsByName.
void count_by(const std::vector<std::string>& names, std::string_view unknown,
              const std::string& directory, RecordTable& table) {
  const LabelsByName labels(names, unknown);
  std::vector<std::int32_t> label_of;
  for (const std::string& name : table.class_names) label_of.push_back(labels.find(name).label);
  for (Record& record : table.records) {
    const std::string& name = table.class_names[record.label];
    record.label = label_of[record.label];
    if (record.label < 0)
      fail_records(directory, "class " + printable(name) + ": " + labels.find(name).why_not);
  }
  table.class_names = names;
}

/// Whether TFRecords were packed that name no class: numbers stand for names, from 0 or 1 on.
bool are_numbers(const std::vector<std::string>& names) {
  for (const std::size_t first : {0, 1}) {
    std::size_t next = first;
    if (std::ranges::all_of(names, [&](const auto& n) { return n == std::to_string(next++); }))
      return true;
  }
  return false;
}

void say(std::string_view what, const std::string& directory, const DatasetOptions& options) {
  options.tell(fmt::format("records: {}: {}", printable(directory), what));
}

void take_wnids(const std::string& directory, const DatasetOptions& options, RecordTable& table) {
  count_by(options.wnids, no_such_wnid, directory, table);
  say("labels are those of the network's wnids", directory, options);
}

/// Why an evaluation keeps the labels that it was packed with; empty: it does not.
std::string_view why_own(bool alone, const std::vector<std::string>& learned,
                         const RecordTable& table) {
  if (learned.empty()) return "no training part and no checkpoint names the classes";
  if (has_all(learned, classes_met(table))) return "";
  if (are_numbers(table.class_names)) return "it names no classes";
  return alone ? "" : "the checkpoint lacks classes of the pack";
}

/// An evaluation has the labels that the network learned, as that of an image folder has. `alone`:
/// without its own training.
void take_learned_labels(const std::string& directory, bool alone, const DatasetOptions& options,
                         RecordTable& table) {
  const std::vector<std::string>& learned = options.class_names;
  if (learned == table.class_names || (learned.empty() && !alone)) return;
  if (const std::string_view why = why_own(alone, learned, table); !why.empty())
    return say(fmt::format("{}: labels are the pack's own", why), directory, options);
  count_by(learned, "training has no such class, so its label is unknown", directory, table);
  say("labels are by the names of the classes that the network learned", directory, options);
}

}  // namespace

std::unique_ptr<EncodedDataset> open_records(const std::string& directory, Split split,
                                             const DatasetOptions& options) {
  const auto training = find_shards(directory, train_split, ending, options.progress);
  if (training.empty() && split == Split::training)
    fail_records(directory, "no train-00000-of-....records there; train --pack DIR OUT makes them");
  auto files = split == Split::training
                   ? training
                   : find_shards(directory, val_split, ending, options.progress);
  if (files.empty()) return nullptr;
  // The first file of training knows the classes, for evaluation, too; without it, that of the
  // evaluation.
  const std::string first = directory + "/" + (training.empty() ? files : training)[0].name;
  at(options.progress, Work::index, first);
  const auto names = read(first, options.progress).table.class_names;
  ShardIndex index = join(directory, files, read_all(directory, files, options), names);
  const bool alone = training.empty() || options.elsewhere;
  if (!options.wnids.empty() && are_wnids(names))
    take_wnids(directory, options, index.table);
  else if (split == Split::evaluation && (alone || options.only_evaluated))
    take_learned_labels(directory, alone, options, index.table);
  return make_sharded_dataset(
      {"records", directory, std::move(files), std::move(index), unpack_record},
      options.max_pixels);
}

}  // namespace ringtrain::io
