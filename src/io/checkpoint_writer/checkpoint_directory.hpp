#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "io/checkpoint_writer/checkpoint_file.hpp"
#include "io/lease/folder_lease.hpp"
#include "ringtrain/base/file.hpp"

namespace ringtrain::io {

/// A checkpoint directory owned by this process: opened once, held until destruction or until
/// another run takes it over (FolderLease). Used by the writer process only.
class CheckpointDirectory {
 public:
  /// Creates the directory if it is missing, takes it, removes temporaries of dead runs and checks
  /// that `needed_bytes` are free. `owner` is what a second job is told. Throws Error with
  /// Exit::locked or Exit::storage. `opened` is taken where it is one, whatever has `path` now.
  CheckpointDirectory(const std::string& path, const LeaseHolder& owner, std::uint64_t needed_bytes,
                      const LeaseCalls& calls = {}, const LeaseTerms& terms = {},
                      FileDescriptor opened = {});

  /// Whether the directory's handle is still good: not where its file system was mounted again.
  bool answers() const;
  /// Writes `snapshot` under a temporary name and publishes it when it is durable. On failure
  /// throws Error, having removed the temporary; a file of another lineage that has the name is
  /// one, and with Exit::locked that another run has the directory. What is the best is then also
  /// called best_name. Returns the size of the file.
  std::uint64_t save(const Snapshot& snapshot, FileWriter& writer);
  /// Deletes all but the newest `keep` intact checkpoints of `lineage` up to `newest_step`. A file
  /// is known to be intact because it was written here, or is verified once. Files of other
  /// lineages, or whose header cannot be read, are left alone. `is_wanted` is asked before a file
  /// is verified, which may take long: where this process is wanted for something else, the rest is
  /// left to a later call.
  void retain(
      const std::string& lineage, int keep, std::uint64_t newest_step,
      const std::function<bool()>& is_wanted = [] { return false; });
  void protect(const std::string& name) { protected_ = name; }

  /// Replaces last-save.txt, which is for people and scripts. What goes wrong is left alone.
  void write_last_save(const std::string& text);
  int lock_file() const { return lease_->file(); }
  int descriptor() const { return directory_.get(); }

  /// Bytes a user may still write here, in words, for messages.
  std::string free_space() const;
  /// Remarks for the log since the last call.
  std::vector<std::string> take_notes();

 private:
  /// What a temporary was when it was seen for the first time, or last changed.
  struct LastSeen {
    std::int64_t size = 0, changed_s = 0, changed_ns = 0;
    std::chrono::steady_clock::time_point since;
  };
  void warn_of_others();
  void remove_temporaries();
  bool remove(const std::string& name);
  bool is_dead(const std::string& name);
  void await_space(std::uint64_t needed_bytes, const LeaseCalls& calls);
  void require_space(std::uint64_t needed_bytes) const;
  std::string new_name(std::string_view name);
  FileDescriptor create(const std::string& temporary);
  void publish(const std::string& temporary, const std::string& name, const Snapshot& snapshot,
               std::uint64_t state_hash);
  void publish_best(const std::string& name, const Snapshot& snapshot, FileWriter& writer);
  void replace_unless_equal(const std::string& temporary, const std::string& name,
                            const Snapshot& snapshot, std::uint64_t state_hash);
  bool is_intact(const std::string& name);

  std::string path_;
  FileDescriptor directory_;
  std::optional<FolderLease> lease_;
  std::uint64_t files_ = 0;                        // made so far: part of their names
  std::map<std::string, LastSeen> perhaps_alive_;  // temporaries of others
  std::string protected_;
  std::set<std::string> intact_;
  std::set<int> failed_removals_;  // errno of each that was told
  std::vector<std::string> notes_;
};

}  // namespace ringtrain::io
