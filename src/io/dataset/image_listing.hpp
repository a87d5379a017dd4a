#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "ringtrain/base/work_progress.hpp"

namespace ringtrain::io {

/// Throws Error(Exit::data): why the images in `path` cannot be trained on.
[[noreturn]] void fail_images(const std::filesystem::path& path, std::string_view reason);

struct FolderEntry {
  std::filesystem::path path;
  bool is_folder = false, is_link = false;  ///< links are followed: both may hold
};

/// What a folder of data holds, sorted by bytes: all but hidden names and the folders that servers
/// (@eaDir) and archives (__MACOSX) put beside the user's. Throws as retry_listing() does.
/// `progress` may be null.
std::vector<FolderEntry> entries_of(const std::filesystem::path& folder, WorkProgress* progress);

/// Whether `link`, to a folder, leads to one that holds the link: to follow it would have no end.
bool leads_back(const std::filesystem::path& link);

/// Lists the images of folders and of those in them, and counts what it met over all calls.
class ImageLister {
 public:
  /// Is given an image's path from the listed folder on, and its size.
  using Found = std::function<void(const std::string& name, std::uint64_t bytes)>;

  /// `gone_too`: a link that leads nowhere is listed by its extension, with no bytes, in place of
  /// being a failure.
  explicit ImageLister(WorkProgress* progress, bool gone_too = false)
      : progress_(progress), gone_too_(gone_too) {}

  /// A folder's own images come first, in the order of their bytes, then those of each folder in
  /// it. A file without an image's extension is opened, and is one where it begins as one. Throws
  /// Error(Exit::data) for what cannot be looked at.
  void list(const std::filesystem::path& folder, const Found& found);

  std::uint64_t folders() const { return folders_; }  ///< that have images
  /// What was left out, for the log: empty, or begins with "; ".
  std::string left_out() const;

 private:
  void visit(const std::filesystem::path& folder, const std::string& prefix, const Found& found);
  bool is_image(const std::filesystem::path& file);

  struct Skipped {
    std::uint64_t count = 0;
    std::string first;
    void add(const std::filesystem::path& path);
  };

  WorkProgress* const progress_;
  const bool gone_too_;
  std::vector<std::filesystem::path> open_;  // the folders that it is in, links resolved
  std::uint64_t folders_ = 0;
  Skipped files_, links_;
};

}  // namespace ringtrain::io
