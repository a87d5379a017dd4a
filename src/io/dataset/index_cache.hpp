#pragma once
#include <functional>
#include <string>

#include "io/dataset/shards/sharded_dataset.hpp"
#include "ringtrain/io/dataset/dataset.hpp"

namespace ringtrain::io {

/// The index of `files` of `directory`, as make() makes it, from the cache folder of `options`
/// where it is kept there; else it is made and kept. Files with other names, sizes or times have
/// another index. Of the processes of a host one makes it while the others wait, for a limited
/// time. What is wrong with the folder costs a line, nothing else.
ShardIndex cached_index(const std::string& directory, const std::vector<ShardFile>& files,
                        const DatasetOptions& options, const std::function<ShardIndex()>& make);

}  // namespace ringtrain::io
