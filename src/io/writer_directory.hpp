#pragma once
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "io/writer_file.hpp"
#include "ringtrain/base/file_descriptor.hpp"

namespace ringtrain {

/// For the lock of a directory that the writer of a killed run still holds for its last save.
struct LockWait {
  double timeout_s = 0;
  std::function<void(const std::string&)> tell;  ///< what is waited for; every ten seconds
};

/// What the lock file says while the writer of a killed run finishes its last save.
std::string finishing_text(const std::string& owner);

/// A checkpoint directory owned by this process: opened once, locked until destruction. Used by the
/// writer process only.
class CheckpointDirectory {
 public:
  /// Creates the directory if it is missing, locks it, removes temporaries of dead runs and checks
  /// that `needed_bytes` are free. `owner` is what a second job is told. Throws Error with
  /// Exit::locked or Exit::storage.
  CheckpointDirectory(const std::string& path, const std::string& owner, std::uint64_t needed_bytes,
                      const LockWait& wait = {});

  /// Writes `snapshot` under a temporary name and publishes it when it is durable. On failure
  /// throws Error, having removed the temporary; a file of another lineage that has the name is
  /// one. Returns the size of the file.
  std::uint64_t save(const Snapshot& snapshot, FileWriter& writer);
  /// Deletes all but the newest `keep` intact checkpoints of `lineage` up to `newest_step`. A file
  /// is known to be intact because it was written here, or is verified once. Files of other
  /// lineages, or whose header cannot be read, are left alone.
  void retain(const std::string& lineage, int keep, std::uint64_t newest_step);
  void protect(const std::string& name) { protected_ = name; }

  /// Replaces last-save.txt, which is for people and scripts. What goes wrong is left alone.
  void write_last_save(const std::string& text);
  /// -1: the file system has no locks.
  int lock_file() const { return lock_.get(); }

  /// Bytes a user may still write here, in words, for messages.
  std::string free_space() const;
  /// Remarks for the log since the last call.
  std::vector<std::string> take_notes();

 private:
  void warn_of_others();
  void lock(const std::string& owner, const LockWait& wait);
  void remove_temporaries();
  void require_space(std::uint64_t needed_bytes) const;
  FileDescriptor create(const std::string& temporary);
  void publish(const std::string& temporary, const std::string& name, const std::string& lineage,
               std::uint64_t state_hash);
  void replace_unless_equal(const std::string& temporary, const std::string& name,
                            const std::string& lineage, std::uint64_t state_hash);
  bool is_intact(const std::string& name);

  std::string path_;
  FileDescriptor directory_, lock_;
  std::string protected_;
  std::set<std::string> intact_;
  std::vector<std::string> notes_;
};

}  // namespace ringtrain
