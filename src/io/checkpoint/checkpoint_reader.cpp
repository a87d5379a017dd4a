#include "ringtrain/io/checkpoint/checkpoint_reader.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <system_error>
#include <thread>
#include <utility>

#include "io/checkpoint/checkpoint_index.hpp"
#include "io/checkpoint/checkpoint_opener.hpp"
#include "ringtrain/base/file.hpp"
#include "ringtrain/base/hash.hpp"
#include "ringtrain/base/permissions.hpp"
#include "ringtrain/base/text.hpp"
#include "ringtrain/io/files/read_retries.hpp"

namespace ringtrain::io {

struct CheckpointFile::Opened {
  std::filesystem::path path;
  WorkProgress* progress;
  std::shared_ptr<RetryBudget> retries;  // null: none
  FileDescriptor file;
  CheckpointIndex index;
  std::vector<TensorInfo> tensors;
};

namespace {

constexpr std::size_t piece_bytes = 1 << 20;
constexpr std::size_t most_in_one_call = 1 << 20;  // a slow file system is seen to go on
constexpr std::size_t most_reported = 10;
// A file may claim more bytes than its disk holds; reading the holes must not take for ever.
constexpr std::uint64_t most_holes = 256 << 20, most_holes_per_byte = 8;

struct StaleHandle : Damage {
  using Damage::Damage;
};

// `what` of errno: `call` has failed.
[[noreturn]] void fail_call(std::string_view call, int error) {
  const std::string text = fmt::format("{}: {}", call, std::generic_category().message(error));
  if (error == ESTALE) throw StaleHandle(text);
  throw Damage(text);
}

Error damaged(const std::filesystem::path& path, std::string_view what) {
  return Error(Exit::no_valid_checkpoint, "checkpoint " + printable(path.string()), what);
}

std::string_view kind_of(mode_t mode) {
  if (S_ISLNK(mode)) return "a symbolic link is not followed here";
  if (S_ISDIR(mode)) return "not a regular file but a directory: name a file in it";
  if (S_ISFIFO(mode)) return "not a regular file but a FIFO";
  if (S_ISSOCK(mode)) return "not a regular file but a socket";
  return "not a regular file but a device";
}

/// What is read, and how.
struct CheckpointSource {
  int file;
  const std::filesystem::path& path;
  WorkProgress* progress = nullptr;
  RetryBudget* retries = nullptr;

  // What is stale stays so.
  bool waits(int error, std::uint64_t offset) const {
    return error != ESTALE && retries != nullptr && retries->wait(path, error, offset, progress);
  }
};

void read_exactly(const CheckpointSource& source, std::span<std::byte> bytes,
                  std::uint64_t offset) {
  while (!bytes.empty()) {
    const std::size_t wanted = std::min(bytes.size(), most_in_one_call);
    const ssize_t got = ::pread(source.file, bytes.data(), wanted, static_cast<off_t>(offset));
    if (got < 0 && (errno == EINTR || source.waits(errno, offset))) continue;
    if (got < 0) fail_call("read", errno);
    if (got == 0) throw Damage("became shorter while it was read");
    bytes = bytes.subspan(static_cast<std::size_t>(got));
    offset += static_cast<std::uint64_t>(got);
    advance(source.progress);
  }
}

std::uint64_t size_of_regular(const CheckpointSource& source) {
  struct stat status {};
  while (::fstat(source.file, &status) != 0)
    if (!source.waits(errno, 0)) fail_call("fstat", errno);
  if (!S_ISREG(status.st_mode)) throw Damage(std::string(kind_of(status.st_mode)));
  return static_cast<std::uint64_t>(status.st_size);
}

// All of them where the file system cannot tell.
std::uint64_t bytes_on_disk(int file, std::uint64_t file_bytes) {
  std::uint64_t bytes = 0;
  for (off_t hole = 0; static_cast<std::uint64_t>(hole) < file_bytes;) {
    const off_t data = ::lseek(file, hole, SEEK_DATA);
    if (data < 0) return errno == ENXIO ? bytes : file_bytes;
    hole = ::lseek(file, data, SEEK_HOLE);
    if (hole <= data) return file_bytes;
    bytes += static_cast<std::uint64_t>(hole - data);
  }
  return bytes;
}

void refuse_mostly_holes(int file, std::uint64_t file_bytes) {
  if (file_bytes <= most_holes) return;
  const std::uint64_t there = bytes_on_disk(file, file_bytes);
  if ((file_bytes - most_holes) / most_holes_per_byte > there)
    throw Damage(fmt::format("{} bytes long, but only {} were ever written", file_bytes, there));
}

CheckpointIndex read_index(const CheckpointSource& source) {
  const std::uint64_t bytes = size_of_regular(source);
  refuse_mostly_holes(source.file, bytes);
  std::vector<std::byte> header(std::min<std::uint64_t>(bytes, header_bytes));
  read_exactly(source, header, 0);
  std::vector<std::byte> block(checked_user_block(header, bytes));
  read_exactly(source, block, 0);
  return decode(block, bytes);
}

void hash_range(const CheckpointSource& source, std::uint64_t begin, std::uint64_t end,
                Hasher& hasher) {
  std::vector<std::byte> bytes(std::min<std::uint64_t>(end - begin, piece_bytes));
  while (begin < end) {
    const std::span piece(bytes.data(), std::min<std::uint64_t>(end - begin, bytes.size()));
    read_exactly(source, piece, begin);
    hasher.update(piece);
    begin += piece.size();
  }
}

std::uint64_t hash_outside(const CheckpointSource& source, const CheckpointIndex& index) {
  Hasher hasher;
  std::uint64_t position = index.user_block;
  for (const StoredTensor* tensor : in_file_order(index)) {
    hash_range(source, position, tensor->offset, hasher);
    position = tensor->offset + tensor->bytes;
  }
  hash_range(source, position, index.file_bytes, hasher);
  return hasher.value();
}

std::uint64_t hash_tensor(const CheckpointSource& source, const StoredTensor& tensor) {
  Hasher hasher;
  hash_range(source, tensor.offset, tensor.offset + tensor.bytes, hasher);
  return hasher.value();
}

}  // namespace

struct CheckpointFileOpener {
  static CheckpointFile open_beneath(int directory, const std::string& name,
                                     const std::filesystem::path& path, WorkProgress* progress,
                                     std::shared_ptr<RetryBudget> retries) {
    at(progress, Work::read, path.native());
    refuse_others(directory, name, path, AT_SYMLINK_NOFOLLOW);
    return open([&] { return ringtrain::open_beneath(directory, name.c_str(), flags); }, path,
                {directory, name}, progress, std::move(retries));
  }

  static std::optional<std::string> lineage_beneath(int directory, const std::string& name,
                                                    RetryBudget* retries) try {
    refuse_others(directory, name, name, AT_SYMLINK_NOFOLLOW);
    const std::filesystem::path path = name;
    CheckpointSource source{-1, path, nullptr, retries};
    const FileDescriptor file =
        opened(source, [&] { return ringtrain::open_beneath(directory, name.c_str(), flags); });
    std::array<std::byte, header_bytes> header;
    if (file.get() < 0 && errno == ESTALE) fail_call("open", errno);
    if (file.get() < 0) return std::nullopt;
    source.file = file.get();
    read_exactly(source, header, 0);
    return lineage_in(header);
  } catch (const StaleHandle&) {
    const bool again = retries != nullptr && retries->wait(name, ESTALE, 0, nullptr);
    return again ? lineage_beneath(directory, name, retries) : std::nullopt;
  } catch (const Damage&) {
    return std::nullopt;
  } catch (const Error&) {
    return std::nullopt;
  }

  static CheckpointFile open_path(const std::filesystem::path& path, WorkProgress* progress) {
    at(progress, Work::read, path.native());
    refuse_others(AT_FDCWD, path, path, 0);
    const auto retries = std::make_shared<RetryBudget>();
    for (;;) try {
        return open([&] { return ::open(path.c_str(), flags); }, path, {AT_FDCWD, path}, progress,
                    retries);
      } catch (const StaleCheckpoint&) {
        if (!retries->wait(path, ESTALE, 0, progress)) throw;
      }
  }

  static CheckpointSource source(const CheckpointFile::Opened& opened) {
    return {opened.file.get(), opened.path, opened.progress, opened.retries.get()};
  }

 private:
  // O_NONBLOCK: a FIFO planted just now must not make us wait for a writer
  static constexpr int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;

  // Only to open a device can do something already, so it is asked before.
  static void refuse_others(int directory, const std::string& name,
                            const std::filesystem::path& path, int follow) {
    struct stat status {};
    if (::fstatat(directory, name.c_str(), &status, follow) == 0 && !S_ISREG(status.st_mode))
      throw damaged(path, kind_of(status.st_mode));
  }

  struct Place {
    int directory;
    std::string name;
  };

  // It may be intact.
  static Error unreadable(const std::filesystem::path& path, const Place& place) {
    return {
        Exit::storage, "checkpoint " + printable(path.string()),
        fmt::format("may not be read: {}", why_denied(place.directory, place.name, Access::read))};
  }

  // Negative where that stays an error, which errno tells.
  static FileDescriptor opened(const CheckpointSource& source, const auto& open) {
    for (;;) {
      FileDescriptor file(open());
      if (file.get() >= 0 || !source.waits(errno, 0)) return file;
    }
  }

  static CheckpointFile open(const auto& open, const std::filesystem::path& path,
                             const Place& place, WorkProgress* progress,
                             std::shared_ptr<RetryBudget> retries) {
    auto found = std::make_unique<CheckpointFile::Opened>();
    found->path = path;
    found->progress = progress;
    found->retries = std::move(retries);
    found->file = opened(source(*found), open);
    if (found->file.get() < 0 && errno == EACCES) throw unreadable(path, place);
    try {
      if (found->file.get() < 0) fail_call("open", errno);
      found->index = read_index(source(*found));
    } catch (const StaleHandle& stale) {
      throw StaleCheckpoint(damaged(path, stale.what()));
    } catch (const Damage& damage) {
      throw damaged(path, damage.what());
    }
    for (const StoredTensor& tensor : found->index.tensors) found->tensors.push_back(tensor.info);
    return CheckpointFile(std::move(found));
  }
};

bool RetryBudget::wait(const std::filesystem::path& path, int error, std::uint64_t offset,
                       WorkProgress* progress) {
  using namespace std::chrono_literals;
  constexpr std::array pauses = {250ms, 750ms, 2000ms, 5000ms};
  if (!may_pass(error) || waits_ == pauses.size()) return false;
  if (waits_ == 0)
    ReadRetries::report_on_stderr(
        fmt::format("read checkpoint {}: {}; trying again, at most {} times in 8 s",
                    printable(path.string()), ReadFailure(error, offset).text(), pauses.size()));
  std::this_thread::sleep_for(pauses[waits_++]);
  advance(progress);
  errno = error;
  return true;
}

std::string first_ten(std::span<const std::string> all) {
  const auto shown = all.first(std::min(all.size(), most_reported));
  const std::string more =
      all.size() > shown.size() ? fmt::format("; and {} more", all.size() - shown.size()) : "";
  return fmt::format("{}{}", fmt::join(shown, "; "), more);
}

CheckpointFile open_checkpoint_at(int directory, const std::string& name,
                                  const std::filesystem::path& folder, WorkProgress* progress,
                                  std::shared_ptr<RetryBudget> retries) {
  return CheckpointFileOpener::open_beneath(directory, name, folder / name, progress,
                                            std::move(retries));
}

std::optional<std::string> lineage_at(int directory, const std::string& name,
                                      RetryBudget* retries) {
  return CheckpointFileOpener::lineage_beneath(directory, name, retries);
}

CheckpointFile CheckpointFile::open(const std::filesystem::path& path, WorkProgress* progress) {
  return CheckpointFileOpener::open_path(path, progress);
}

CheckpointFile::CheckpointFile(std::unique_ptr<Opened> opened) : opened_(std::move(opened)) {}
CheckpointFile::CheckpointFile(CheckpointFile&&) noexcept = default;
CheckpointFile& CheckpointFile::operator=(CheckpointFile&&) noexcept = default;
CheckpointFile::~CheckpointFile() = default;

const std::filesystem::path& CheckpointFile::path() const { return opened_->path; }
const CheckpointMetadata& CheckpointFile::metadata() const { return opened_->index.metadata; }
const std::string& CheckpointFile::run_id() const { return opened_->index.run_id; }
const std::string& CheckpointFile::lineage() const { return opened_->index.lineage; }
const std::vector<TensorInfo>& CheckpointFile::tensors() const { return opened_->tensors; }

std::optional<std::size_t> CheckpointFile::find(const TensorInfo& tensor) const {
  const auto found = std::ranges::find(tensors(), tensor);
  if (found == tensors().end()) return std::nullopt;
  return found - tensors().begin();
}

std::uint64_t CheckpointFile::state_hash() const {
  std::vector<std::uint64_t> hashes;
  for (const StoredTensor& tensor : opened_->index.tensors) hashes.push_back(tensor.hash);
  return ringtrain::io::state_hash(metadata(), tensors(), hashes);
}

void CheckpointFile::verify() const {
  const CheckpointSource source = CheckpointFileOpener::source(*opened_);
  ::posix_fadvise(source.file, 0, 0, POSIX_FADV_WILLNEED);  // the disk reads while we hash
  std::vector<std::string> wrong;
  try {
    if (hash_outside(source, opened_->index) != opened_->index.outside_hash)
      wrong.emplace_back("the HDF5 metadata fails its hash");
    for (const StoredTensor& tensor : opened_->index.tensors)
      if (hash_tensor(source, tensor) != tensor.hash)
        wrong.push_back(fmt::format("tensor {} fails its hash", tensor.info.name));
  } catch (const StaleHandle& stale) {
    throw StaleCheckpoint(damaged(path(), stale.what()));
  } catch (const Damage& damage) {
    wrong.emplace_back(damage.what());
  }
  if (!wrong.empty()) throw damaged(path(), first_ten(wrong));
}

std::string CheckpointFile::misfit(const TensorInfo& needed) const {
  const auto found = std::ranges::find(tensors(), needed.name, &TensorInfo::name);
  if (found == tensors().end()) return "has no " + describe(needed);
  return fmt::format("has {}, needed is [{}]", describe(*found), fmt::join(needed.shape, ","));
}

void CheckpointFile::expect(std::span<const TensorInfo> expected) const {
  std::vector<std::string> differences;
  bool same_model = true;
  const auto note = [&](const TensorInfo& info, std::string difference) {
    differences.push_back(std::move(difference));
    same_model &= info.name.starts_with("optimizer/") || info.name.starts_with("ema/");
  };
  const auto& found = tensors();
  for (std::size_t i = 0; i < std::max(expected.size(), found.size()); ++i) {
    if (i < expected.size() && !find(expected[i])) note(expected[i], misfit(expected[i]));
    if (i < found.size() &&
        std::ranges::find(expected, found[i].name, &TensorInfo::name) == expected.end())
      note(found[i], "has " + describe(found[i]) + ", which is not needed");
  }
  if (differences.empty()) return;
  const std::string other = same_model
                                ? "saved with another --optimizer or --ema"
                                : fmt::format("of another model ({})", brief(metadata().model));
  throw Error(Exit::incompatible_checkpoint, "checkpoint " + printable(path().string()),
              other + ": " + first_ten(differences));
}

void CheckpointFile::read(std::size_t tensor, std::span<float> values) const {
  expects(tensor < tensors().size(), "CheckpointFile::read: the tensor exists");
  const StoredTensor& stored = opened_->index.tensors[tensor];
  expects(values.size_bytes() == stored.bytes,
          "CheckpointFile::read: values have the tensor's size");
  try {
    read_exactly(CheckpointFileOpener::source(*opened_), std::as_writable_bytes(values),
                 stored.offset);
  } catch (const Damage& damage) {
    throw damaged(path(), damage.what());
  }
  if (hash_bytes(std::as_bytes(values)) != stored.hash)
    throw damaged(path(), fmt::format("tensor {} fails its hash", stored.info.name));
}

void CheckpointFile::read_in_pieces(std::size_t tensor,
                                    const std::function<void(std::span<const float>)>& take) const {
  expects(tensor < tensors().size(), "CheckpointFile::read_in_pieces: the tensor exists");
  const StoredTensor& stored = opened_->index.tensors[tensor];
  std::vector<float> values(std::min<std::uint64_t>(stored.bytes, piece_bytes) / sizeof(float));
  try {
    for (std::uint64_t done = 0; done < stored.bytes; done += piece_bytes) {
      const std::uint64_t bytes = std::min<std::uint64_t>(stored.bytes - done, piece_bytes);
      const std::span piece(values.data(), bytes / sizeof(float));
      read_exactly(CheckpointFileOpener::source(*opened_), std::as_writable_bytes(piece),
                   stored.offset + done);
      take(piece);
    }
  } catch (const Damage& damage) {
    throw damaged(path(), damage.what());
  }
}

void read_checkpoint(const CheckpointFile& file, std::span<const TensorInfo> expected,
                     std::span<const std::span<float>> destinations) {
  expects(expected.size() == destinations.size(), "read_checkpoint: one destination a tensor");
  file.expect(expected);
  file.verify();
  for (std::size_t i = 0; i < destinations.size(); ++i)
    file.read(*file.find(expected[i]), destinations[i]);
}

}  // namespace ringtrain::io
