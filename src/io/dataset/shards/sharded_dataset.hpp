#pragma once
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/dataset/encoded_dataset.hpp"
#include "io/files/records_file.hpp"
#include "io/files/shard_files.hpp"
#include "ringtrain/io/dataset/dataset.hpp"

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

/// Calls work(0) to work(count - 1), low numbers first, on `threads` threads of its own, and waits
/// for them. Every five seconds it calls progress(calls done), and whenever it is another one
/// oldest(the first that is begun and not done), on the calling thread. Once one call throws no
/// other begins, and the lowest number's exception is rethrown: the same one, whatever the threads
/// do.
void each_shard(std::size_t count, int threads, const std::function<void(std::size_t)>& work,
                const std::function<void(std::size_t)>& progress,
                const std::function<void(std::size_t)>& oldest = nullptr);

/// The index of `files` of `directory`, as make() makes it, from the cache folder of `options`
/// where it is kept there; else it is made and kept. Files with other names, sizes or times have
/// another index. Of the processes of a host one makes it while the others wait, for a limited
/// time. What is wrong with the folder costs a line, nothing else.
ShardIndex cached_index(const std::string& directory, const std::vector<ShardFile>& files,
                        const DatasetOptions& options, const std::function<ShardIndex()>& make);

}  // namespace ringtrain::io
