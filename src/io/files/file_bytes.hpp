#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "ringtrain/base/work_progress.hpp"
#include "ringtrain/io/files/read_retries.hpp"

namespace ringtrain::io {

/// Throws Error(Exit::limit) where `error`, an errno, says that too many files are open: no damage
/// of a sample, and the next one would fail, too.
void check_open_files(int error, std::string_view call);

/// What `call()` returns of a look at `path`. Its filesystem_error is tried again where it may
/// pass, and else thrown. Throws as ReadRetries do.
template <class Call>
auto retry_listing(const std::filesystem::path& path, Call call) {
  return ReadRetries().run(path.native(), [&](bool) {
    try {
      return call();
    } catch (const std::filesystem::filesystem_error& failure) {
      const int error = failure.code().value();
      if (may_pass(error)) throw ReadFailure(error, 0);
      throw;
    }
  });
}

/// A file that is not there or may not be read: what is in it is not known.
class NoAccess : public UnreadableSample {
 public:
  using UnreadableSample::UnreadableSample;
};

/// Reads a whole regular file, keeping the memory of `bytes` from file to file. What may pass is
/// tried again, and throws as `retries` do. Throws NoAccess with the path and the system's words,
/// UnreadableSample where the file is no regular one or is too large, and as check_open_files()
/// does. Of each MiB `progress` hears; null: nobody.
void read_file(const std::string& path, std::vector<std::uint8_t>& bytes, ReadRetries& retries,
               WorkProgress* progress = nullptr);
void read_file(const std::string& path, std::vector<std::uint8_t>& bytes,
               WorkProgress* progress = nullptr);
/// The same for what holds a whole data set, which may be as large as the memory.
void read_large_file(const std::string& path, std::vector<std::uint8_t>& bytes,
                     WorkProgress* progress = nullptr);

}  // namespace ringtrain::io
