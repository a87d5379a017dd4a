#include "ringtrain/io/checkpoint_reader.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "io/checkpoint_index.hpp"
#include "io/checkpoint_name.hpp"
#include "io/checkpoint_opener.hpp"
#include "io/storage_error.hpp"
#include "ringtrain/base/file_descriptor.hpp"
#include "ringtrain/base/hash.hpp"

namespace ringtrain {

struct CheckpointFile::Opened {
  std::filesystem::path path;
  FileDescriptor file;
  CheckpointIndex index;
  std::vector<TensorInfo> tensors;
};

namespace {

constexpr std::size_t piece_bytes = 1 << 20;
constexpr std::size_t most_reported = 10;

Error damaged(const std::filesystem::path& path, std::string_view what) {
  return Error(Exit::no_valid_checkpoint, "checkpoint " + path.string(), what);
}

void read_exactly(int file, std::span<std::byte> bytes, std::uint64_t offset) {
  while (!bytes.empty()) {
    const ssize_t got = ::pread(file, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw Damage("read: " + std::generic_category().message(errno));
    if (got == 0) throw Damage("became shorter while it was read");
    bytes = bytes.subspan(static_cast<std::size_t>(got));
    offset += static_cast<std::uint64_t>(got);
  }
}

std::uint64_t size_of_regular(int file) {
  struct stat status {};
  check_storage(::fstat(file, &status), "fstat");
  if (!S_ISREG(status.st_mode)) throw Damage("not a regular file");
  return static_cast<std::uint64_t>(status.st_size);
}

CheckpointIndex read_index(int file) {
  const std::uint64_t bytes = size_of_regular(file);
  std::vector<std::byte> block(std::min<std::uint64_t>(bytes, header_bytes));
  read_exactly(file, block, 0);
  block.resize(checked_user_block(block, bytes));
  read_exactly(file, block, 0);
  return decode(block, bytes);
}

void hash_range(int file, std::uint64_t begin, std::uint64_t end, Hasher& hasher) {
  std::vector<std::byte> bytes(std::min<std::uint64_t>(end - begin, piece_bytes));
  while (begin < end) {
    const std::span piece(bytes.data(), std::min<std::uint64_t>(end - begin, bytes.size()));
    read_exactly(file, piece, begin);
    hasher.update(piece);
    begin += piece.size();
  }
}

std::uint64_t hash_outside(int file, const CheckpointIndex& index) {
  Hasher hasher;
  std::uint64_t position = index.user_block;
  for (const StoredTensor* tensor : in_file_order(index)) {
    hash_range(file, position, tensor->offset, hasher);
    position = tensor->offset + tensor->bytes;
  }
  hash_range(file, position, index.file_bytes, hasher);
  return hasher.value();
}

std::uint64_t hash_tensor(int file, const StoredTensor& tensor) {
  Hasher hasher;
  hash_range(file, tensor.offset, tensor.offset + tensor.bytes, hasher);
  return hasher.value();
}

std::string joined(std::span<const std::string> all) {
  const auto shown = all.first(std::min(all.size(), most_reported));
  const std::string more =
      all.size() > shown.size() ? fmt::format("; and {} more", all.size() - shown.size()) : "";
  return fmt::format("{}{}", fmt::join(shown, "; "), more);
}

}  // namespace

struct CheckpointFileOpener {
  static CheckpointFile open(int directory, const std::string& name, std::filesystem::path path,
                             int flags) {
    // O_NONBLOCK: a planted FIFO must not make us wait for a writer
    const int fd = ::openat(directory, name.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | flags);
    if (fd < 0 && errno == ELOOP) throw damaged(path, "a symbolic link is not followed here");
    if (fd < 0) throw damaged(path, "open: " + std::generic_category().message(errno));
    auto opened = std::make_unique<CheckpointFile::Opened>();
    opened->path = std::move(path);
    opened->file = FileDescriptor(fd);
    try {
      opened->index = read_index(fd);
    } catch (const Damage& damage) {
      throw damaged(opened->path, damage.what());
    }
    for (const StoredTensor& tensor : opened->index.tensors) opened->tensors.push_back(tensor.info);
    return CheckpointFile(std::move(opened));
  }
};

CheckpointFile open_checkpoint_at(int directory, const std::string& name) {
  return CheckpointFileOpener::open(directory, name, name, O_NOFOLLOW);
}

CheckpointFile CheckpointFile::open(const std::filesystem::path& path) {
  return CheckpointFileOpener::open(AT_FDCWD, path.string(), path, 0);
}

CheckpointFile::CheckpointFile(std::unique_ptr<Opened> opened) : opened_(std::move(opened)) {}
CheckpointFile::CheckpointFile(CheckpointFile&&) noexcept = default;
CheckpointFile& CheckpointFile::operator=(CheckpointFile&&) noexcept = default;
CheckpointFile::~CheckpointFile() = default;

const std::filesystem::path& CheckpointFile::path() const { return opened_->path; }
const CheckpointMetadata& CheckpointFile::metadata() const { return opened_->index.metadata; }
const std::string& CheckpointFile::run_id() const { return opened_->index.run_id; }
const std::vector<TensorInfo>& CheckpointFile::tensors() const { return opened_->tensors; }

std::optional<std::size_t> CheckpointFile::find(const TensorInfo& tensor) const {
  const auto found = std::ranges::find(tensors(), tensor);
  if (found == tensors().end()) return std::nullopt;
  return found - tensors().begin();
}

std::uint64_t CheckpointFile::state_hash() const {
  std::vector<std::uint64_t> hashes;
  for (const StoredTensor& tensor : opened_->index.tensors) hashes.push_back(tensor.hash);
  return ringtrain::state_hash(metadata(), tensors(), hashes);
}

void CheckpointFile::verify() const {
  const int file = opened_->file.get();
  ::posix_fadvise(file, 0, 0, POSIX_FADV_WILLNEED);  // the disk reads while we hash
  std::vector<std::string> wrong;
  try {
    if (hash_outside(file, opened_->index) != opened_->index.outside_hash)
      wrong.emplace_back("the HDF5 metadata fails its hash");
    for (const StoredTensor& tensor : opened_->index.tensors)
      if (hash_tensor(file, tensor) != tensor.hash)
        wrong.push_back(fmt::format("tensor {} fails its hash", tensor.info.name));
  } catch (const Damage& damage) {
    wrong.emplace_back(damage.what());
  }
  if (!wrong.empty()) throw damaged(path(), joined(wrong));
}

void CheckpointFile::expect(std::span<const TensorInfo> expected) const {
  std::vector<std::string> differences;
  const auto& found = tensors();
  for (std::size_t i = 0; i < std::max(expected.size(), found.size()); ++i) {
    const std::string ours = i < expected.size() ? describe(expected[i]) : "nothing";
    const std::string theirs = i < found.size() ? describe(found[i]) : "nothing";
    if (ours != theirs) differences.push_back(fmt::format("has {}, needed is {}", theirs, ours));
  }
  if (!differences.empty())
    throw Error(Exit::incompatible_checkpoint, "checkpoint " + path().string(),
                fmt::format("of another model ({}): {}", metadata().model, joined(differences)));
}

void CheckpointFile::read(std::size_t tensor, std::span<float> values) const {
  expects(tensor < tensors().size(), "CheckpointFile::read: the tensor exists");
  const StoredTensor& stored = opened_->index.tensors[tensor];
  expects(values.size_bytes() == stored.bytes,
          "CheckpointFile::read: values have the tensor's size");
  try {
    read_exactly(opened_->file.get(), std::as_writable_bytes(values), stored.offset);
  } catch (const Damage& damage) {
    throw damaged(path(), damage.what());
  }
  if (hash_bytes(std::as_bytes(values)) != stored.hash)
    throw damaged(path(), fmt::format("tensor {} fails its hash", stored.info.name));
}

LatestCheckpoint find_latest(const std::filesystem::path& directory) {
  const FileDescriptor opened(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (opened.get() < 0 && errno == ENOENT)
    return {{},
            {},
            fmt::format("{} does not exist yet: training starts from scratch", directory.string())};
  check_storage(opened.get(), "open checkpoint directory " + directory.string());

  LatestCheckpoint latest;
  for (const std::string& name : checkpoint_names(opened.get())) {
    try {
      CheckpointFile file =
          CheckpointFileOpener::open(opened.get(), name, directory / name, O_NOFOLLOW);
      file.verify();
      latest.note = fmt::format("resuming from {}, step {}", name, file.metadata().step);
      latest.file = std::move(file);
      return latest;
    } catch (const Error& failure) {
      latest.rejected.emplace_back(failure.what());
    }
  }
  if (!latest.rejected.empty())
    throw Error(Exit::no_valid_checkpoint, "resume from " + directory.string(),
                fmt::format("no checkpoint is intact: {}. Repair or move them, or start over with "
                            "--resume never",
                            joined(latest.rejected)));
  latest.note =
      fmt::format("no checkpoint in {}: training starts from scratch", directory.string());
  return latest;
}

void read_checkpoint(const CheckpointFile& file, std::span<const TensorInfo> expected,
                     std::span<const std::span<float>> destinations) {
  expects(expected.size() == destinations.size(), "read_checkpoint: one destination a tensor");
  file.expect(expected);
  file.verify();
  for (std::size_t i = 0; i < destinations.size(); ++i) file.read(i, destinations[i]);
}

}  // namespace ringtrain
