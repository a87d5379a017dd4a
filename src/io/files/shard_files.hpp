#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ringtrain/base/work_progress.hpp"

namespace ringtrain::io {

/// One file of a data set that is cut into <split>-00000-of-00008, -00001-of-00008 and so on.
struct ShardFile {
  std::string name;
  std::uint64_t bytes = 0;
  std::int64_t modified_ns = 0;
};

/// The shards of the first of `splits` that `directory` has any of, all of them and in order; empty
/// where it has none. After the number a name ends with one of `endings`. Throws Error(Exit::data)
/// where one is missing, empty or no file, or two sets are mixed. `progress` hears of each name;
/// null: nobody.
std::vector<ShardFile> find_shards(const std::string& directory,
                                   std::span<const std::string_view> splits,
                                   std::span<const std::string_view> endings,
                                   WorkProgress* progress = nullptr);

}  // namespace ringtrain::io
