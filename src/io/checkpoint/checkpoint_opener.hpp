#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "ringtrain/base/error.hpp"
#include "ringtrain/io/checkpoint/checkpoint_reader.hpp"

namespace ringtrain::io {

/// How often calls on checkpoints are made again that fail and may_pass(): four times in all,
/// within eight seconds. Thread: one.
class RetryBudget {
 public:
  /// Waits, and returns whether to make the call again; never after errors that last. Reports the
  /// first wait on standard error. errno stays as it is.
  bool wait(const std::filesystem::path& path, int error, std::uint64_t offset,
            WorkProgress* progress);

 private:
  std::size_t waits_ = 0;
};

/// A checkpoint's handle, or its directory's, is stale (NFS): both are to be opened anew.
class StaleCheckpoint : public Error {
 public:
  explicit StaleCheckpoint(const Error& failure) : Error(failure) {}
};

/// CheckpointFile::open for a name in an open directory; symbolic links are refused. Messages call
/// the file `folder`/`name`. Without `retries` no call is made again. Throws StaleCheckpoint, as
/// verify() of such a file does.
CheckpointFile open_checkpoint_at(int directory, const std::string& name,
                                  const std::filesystem::path& folder = {},
                                  WorkProgress* progress = nullptr,
                                  std::shared_ptr<RetryBudget> retries = nullptr);

/// The lineage that the file's header tells, whatever else is wrong with the file; nothing where
/// its header cannot be read.
std::optional<std::string> lineage_at(int directory, const std::string& name,
                                      RetryBudget* retries = nullptr);

/// The first ten of `all`, and how many more there are.
std::string first_ten(std::span<const std::string> all);

/// What inspect() says of a directory.
std::string inspect_folder(const std::filesystem::path& directory);

}  // namespace ringtrain::io
