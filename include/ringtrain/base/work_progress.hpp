#pragma once
#include <cstdint>
#include <string_view>

namespace ringtrain {

/// What a file or folder is needed for.
enum class Work : std::uint8_t {
  open,
  list,   ///< the names of data
  index,  ///< of a data set: made or read
  plan,   ///< a model, its primitives: a name instead of a path
  read,   ///< part of what the caller does, such as resuming
};

/// Whoever opens, lists or reads files that may not answer says here where it is, so that a
/// watchdog can name the path and tell slow work from none. Never waits, throws nothing.
class WorkProgress {
 public:
  virtual ~WorkProgress() = default;
  /// What comes now may wait for `path`. From the main thread only.
  virtual void at(Work work, std::string_view path) noexcept = 0;
  /// Some of it is done: bytes read, names listed, steps planned. From any thread.
  virtual void advance() noexcept = 0;
};

/// Calls advance() where `progress` is not null.
inline void advance(WorkProgress* progress) noexcept {
  if (progress != nullptr) progress->advance();
}
inline void at(WorkProgress* progress, Work work, std::string_view path) noexcept {
  if (progress != nullptr) progress->at(work, path);
}

}  // namespace ringtrain
