#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ringtrain/base/work_progress.hpp"
#include "ringtrain/io/checkpoint/checkpoint.hpp"

namespace ringtrain::io {

/// A checkpoint opened for reading. Only this project's own index is parsed, never HDF5, so a
/// hostile file can make nothing happen but an Error; memory is bounded by 64 MiB and what the
/// caller passes, time by the bytes on disk. Every Error names the file and what is wrong with it;
/// names in it are printable, model and texts need not be.
class CheckpointFile {
 public:
  /// Checks the index. Throws Error(Exit::no_valid_checkpoint) for what is not an intact one, and
  /// with Exit::storage, whose it is, for what this process may not read. A symbolic link is
  /// followed: the path is the user's own word. `progress`, here and below, hears which file is
  /// read and that it goes on, and outlives the object; null: nobody.
  static CheckpointFile open(const std::filesystem::path& path, WorkProgress* progress = nullptr);
  CheckpointFile(CheckpointFile&&) noexcept;
  CheckpointFile& operator=(CheckpointFile&&) noexcept;
  ~CheckpointFile();

  const std::filesystem::path& path() const;
  const CheckpointMetadata& metadata() const;
  const std::string& run_id() const;
  /// The id of its training, from scratch on through all resumes: 16 hexadecimal digits. Empty in
  /// files of format version 1 and in what goes on from them: all of these count as one lineage.
  const std::string& lineage() const;
  const std::vector<TensorInfo>& tensors() const;
  /// The place in tensors() of one with this name and shape.
  std::optional<std::size_t> find(const TensorInfo& tensor) const;
  std::uint64_t state_hash() const;

  /// Reads all bytes; throws Error(Exit::no_valid_checkpoint) naming every part that is damaged.
  void verify() const;
  /// What is said of a tensor that find() does not find: the name is missing, or the shape differs.
  std::string misfit(const TensorInfo& needed) const;
  /// Throws Error(Exit::incompatible_checkpoint) with the first ten differing names and shapes; the
  /// order does not matter.
  void expect(std::span<const TensorInfo> expected) const;
  /// Fills `values`, of exactly the tensor's size, and checks its hash: on Error they are garbage.
  void read(std::size_t tensor, std::span<float> values) const;
  /// Gives `take` the values in order, at most 1 MiB at once. Hashes are verify()'s.
  void read_in_pieces(std::size_t tensor,
                      const std::function<void(std::span<const float>)>& take) const;

 private:
  friend struct CheckpointFileOpener;
  struct Opened;
  explicit CheckpointFile(std::unique_ptr<Opened> opened);
  std::unique_ptr<Opened> opened_;
};

/// Whether it is a regular file that can be read and does not begin as a checkpoint.
bool begins_otherwise(const std::filesystem::path& path);

/// The newest intact checkpoint of a directory, and how it was found.
struct LatestCheckpoint {
  std::optional<CheckpointFile> file;  ///< verified completely
  std::vector<std::string> rejected;   ///< newer files that are not intact, each with the reason
  std::string note;                    ///< what was found, as a sentence for the log
};

/// Looks through `step-*.h5` from the newest on. No such file (or no directory) gives no file;
/// files of which none is intact throw Error(Exit::no_valid_checkpoint), or with Exit::storage
/// where some may not be read: training must not silently start from scratch. Files of several
/// lineages throw Error(Exit::incompatible_checkpoint), which names them. A file whose header
/// cannot be read counts for none.
LatestCheckpoint find_latest(const std::filesystem::path& directory,
                             WorkProgress* progress = nullptr);

/// Throws Error(Exit::incompatible_checkpoint), naming lineages and ways out, unless a training of
/// `lineage` may save in `directory`. One that starts from scratch may where there is no
/// `step-*.h5`. One that goes on from a file of `resumed_step` may where all files are of its
/// lineage. It also may beside files of others, if some are its own and those of others are not of
/// later steps, which would be in its way.
void require_own_folder(const std::filesystem::path& directory, const std::string& lineage,
                        std::optional<std::uint64_t> resumed_step,
                        WorkProgress* progress = nullptr);

/// The first of the files that find_latest() looks at whose index is intact: it reads no tensor.
/// Throws nothing for files that are not.
std::optional<CheckpointFile> peek_latest(const std::filesystem::path& directory,
                                          WorkProgress* progress = nullptr);

/// Checks every byte of `file`, and that it holds exactly `expected`; copies tensor i to
/// `destinations[i]`.
void read_checkpoint(const CheckpointFile& file, std::span<const TensorInfo> expected,
                     std::span<const std::span<float>> destinations);

/// The text of `--inspect`. Of a file: scalars, a table of the tensors with their range, mean and
/// deviation, and last a line `state-hash <hex>`; throws like CheckpointFile::open and verify. Of a
/// directory: which file `--resume auto` would take, its lineage, and why not the others; throws
/// like find_latest().
std::string inspect(const std::filesystem::path& path);

}  // namespace ringtrain::io
