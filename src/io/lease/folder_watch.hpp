#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

namespace ringtrain::io {

/// Where a folder is that was opened by its path.
struct FolderPlace {
  bool at_path = true;  ///< the path still leads to it
  std::string now;      ///< a path that leads to it; empty: none does
  std::string text;     ///< for the user: what became of the path, and what to do
};

/// Where the open folder `directory`, that was opened as `path` and has a lease, is now. Nothing
/// where the file system does not tell. May wait as long as a file system hangs.
std::optional<FolderPlace> find_folder(int directory, const std::string& path);

/// Looks again and again where an open folder is, and reports each change. It does so on a thread
/// of its own: the path may lead to another file system, which may hang.
class FolderWatch {
 public:
  /// False where nobody listens: then it is called again after the next look.
  using Report = std::function<bool(const FolderPlace&)>;

  /// `at_path`: what was reported last. `report` is called on the watch's thread and must not wait.
  FolderWatch(int directory, std::string path, bool at_path, std::chrono::milliseconds interval,
              Report report);
  /// Waits for no look. From then on nothing is reported.
  ~FolderWatch();
  FolderWatch(const FolderWatch&) = delete;
  FolderWatch& operator=(const FolderWatch&) = delete;

 private:
  struct Shared;
  static void watch(const std::shared_ptr<Shared>& shared);

  std::shared_ptr<Shared> shared_;  // with a thread that hangs in a look, and is left behind
  std::thread thread_;
};

}  // namespace ringtrain::io
