#pragma once
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/dataset/encoded_dataset.hpp"
#include "io/files/records_file.hpp"
#include "io/files/shard_files.hpp"

namespace ringtrain::io {

/// Where the samples of a sharded data set are.
struct ShardIndex {
  std::vector<std::uint64_t> ends;  ///< for each shard, how many records it and those before have
  RecordTable table;                ///< of all shards
};

struct ShardedData {
  std::string kind;  ///< as `--data` names it
  std::string directory;
  std::vector<ShardFile> files;
  ShardIndex index;  ///< labels are classes; -1 for a sample that unpack() refuses
  Unpack unpack;
  std::int32_t first_label = 0;  ///< the first class's, in records
};

/// Reads one record a sample from its shard, by pread on any number of threads. Keeps as many files
/// open as a quarter of what the process may; others are opened for each record. Throws
/// Error(Exit::data) for records outside of their file, and for a file that is another one than
/// `files` says. A reader throws it, too, for a label that is not the index's, and for a shard that
/// cannot be opened.
std::unique_ptr<EncodedDataset> make_sharded_dataset(ShardedData data, std::uint64_t max_pixels);

}  // namespace ringtrain::io
