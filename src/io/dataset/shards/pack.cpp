#include "ringtrain/io/dataset/pack.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <mutex>
#include <system_error>

#include "io/dataset/datasets.hpp"
#include "io/dataset/shards/sharded_dataset.hpp"
#include "io/files/records_file.hpp"
#include "io/image/downscale.hpp"
#include "ringtrain/base/atomic_file.hpp"
#include "ringtrain/base/file.hpp"
#include "ringtrain/base/hash.hpp"
#include "ringtrain/base/text.hpp"

namespace ringtrain::io {
namespace {

namespace fs = std::filesystem;
using Bytes = std::span<const std::uint8_t>;

std::string shown(const fs::path& path) { return printable(path.native()); }

// A process of the same number may run on another host.
std::string host_ending() { return fmt::format("-{:x}.part", ::gethostid()); }

/// A file that has its name only once it is whole and on disk.
class NewFile {
 public:
  explicit NewFile(const fs::path& path)
      : path_(path), part_(fmt::format("{}.{}{}", path.native(), ::getpid(), host_ending())) {
    ::unlink(part_.c_str());  // left by a dead process of this number
    const int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW;
    file_ =
        FileDescriptor(check_storage(::open(part_.c_str(), flags, 0666), "create " + shown(part_)));
  }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;
  ~NewFile() {
    std::error_code ignored;
    if (!published_) fs::remove(part_, ignored);
  }

  std::uint64_t size() const { return end_; }
  void append(std::span<const std::byte> bytes) {
    write_at(end_, bytes);
    end_ += bytes.size();
  }
  void write_at(std::uint64_t offset, std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t got =
          ::pwrite(file_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) check_storage(-1, "write " + shown(part_));
      bytes = bytes.subspan(static_cast<std::size_t>(got));
      offset += static_cast<std::uint64_t>(got);
    }
  }
  void publish() {
    check_storage(::fsync(file_.get()), "fsync " + shown(part_));
    check_storage(::rename(part_.c_str(), path_.c_str()), "rename to " + shown(path_));
    published_ = true;
    const std::string reason = sync_folder_of(path_);
    if (!reason.empty()) throw Error(Exit::storage, "fsync the folder of " + shown(path_), reason);
  }

 private:
  const fs::path path_, part_;
  FileDescriptor file_;
  std::uint64_t end_ = records_head_bytes;
  bool published_ = false;
};

/// Packs one split of a data set.
class Packer {
 public:
  Packer(const PackOptions& options, const EncodedDataset& data, std::string split);
  void run();

 private:
  std::size_t file_count() const { return (data_.size() + per_file_ - 1) / per_file_; }
  std::uint64_t end_of(std::size_t file) const {
    return std::min((file + 1) * per_file_, data_.size());
  }
  fs::path path(std::size_t file) const {
    return fs::path(options_.target) /
           fmt::format("{}-{:05}-of-{:05}.records", split_, file, file_count());
  }
  void check_target() const;
  std::optional<RecordTable> kept_table(std::size_t file) const;
  void keep(std::size_t file, const RecordTable& table);
  void write(std::size_t file);
  Bytes read(std::uint64_t sample, Downscaler* shrinker, std::vector<std::uint8_t>& buffer);
  void count_unreadable(std::string_view why);
  void tell() const;

  const PackOptions& options_;
  const EncodedDataset& data_;
  const std::string split_;
  const std::uint64_t per_file_, pack_id_;
  ReadRetries retries_;
  std::atomic<std::uint64_t> images_ = 0, bytes_ = 0, unreadable_ = 0;
};

Packer::Packer(const PackOptions& options, const EncodedDataset& data, std::string split)
    : options_(options),
      data_(data),
      split_(std::move(split)),
      per_file_(static_cast<std::uint64_t>(options.images_a_file)),
      pack_id_(hash_text(fmt::format("{} {}", options.short_side.value_or(0), per_file_),
                         data.manifest_hash())) {}

void Packer::run() {
  check_target();
  each_shard(
      file_count(), options_.data.threads,
      [this](std::size_t file) {
        if (const auto table = kept_table(file))
          keep(file, *table);
        else
          write(file);
      },
      [this](std::size_t) { tell(); });
  tell();
}

// What is there may be weeks of somebody's work: nothing is overwritten or mixed.
void Packer::check_target() const {
  const std::string other = fmt::format("-of-{:05}.records", file_count());
  for (const auto& entry : fs::directory_iterator(options_.target)) {
    const std::string name = entry.path().filename();
    if (name.starts_with(split_ + "-") && name.ends_with(".records") && !name.ends_with(other))
      throw Error(Exit::usage, "--pack into " + printable(options_.target),
                  printable(name) + " is there, of other data; choose another directory");
  }
}

// Of a file that an earlier call made.
std::optional<RecordTable> Packer::kept_table(std::size_t file) const {
  if (!fs::exists(path(file))) return std::nullopt;
  FileSource source(path(file));
  try {
    const RecordsHead head = read_head(source);
    RecordTable table = read_table(source, head);
    if (head.pack_id == pack_id_ && table.records.size() == end_of(file) - file * per_file_)
      return table;
  } catch (const Undecodable&) {
  }
  throw Error(Exit::usage, "--pack into " + printable(options_.target),
              fmt::format("{} is there, of other data or packed with other options, or damaged; "
                          "choose another directory or remove it",
                          printable(path(file).filename().native())));
}

// A pack that was refused is refused again: what it could not read counts.
void Packer::keep(std::size_t file, const RecordTable& table) {
  images_ += table.records.size();
  for (std::size_t i = 0; i < table.records.size(); ++i)
    if (table.records[i].bytes == record_hash_bytes)
      count_unreadable(fmt::format(
          "read {}: it could not be read when {} was made; remove that file once it can",
          data_.place(file * per_file_ + i), shown(path(file))));
}

void Packer::write(std::size_t file) {
  std::optional<Downscaler> shrinker;
  if (options_.short_side) shrinker.emplace(*options_.short_side, options_.data.max_pixels);
  NewFile out(path(file));
  RecordTable table{{}, data_.class_names()};
  std::vector<std::uint8_t> buffer;
  for (std::uint64_t sample = file * per_file_; sample < end_of(file); ++sample) {
    const Bytes image = read(sample, shrinker ? &*shrinker : nullptr, buffer);
    const std::uint64_t offset = out.size(), hash = record_hash(image);
    out.append(std::as_bytes(std::span(&hash, 1)));
    out.append(std::as_bytes(image));
    table.records.push_back(
        {offset, static_cast<std::uint32_t>(out.size() - offset), data_.label(sample)});
    ++images_;
    bytes_ += image.size();
  }
  const std::uint64_t table_offset = out.size();
  const auto encoded_table = encode_table(table);
  out.append(std::as_bytes(std::span(encoded_table)));
  const auto head = encode_head({out.size(), table_offset, pack_id_});
  out.write_at(0, std::as_bytes(std::span(head)));
  out.publish();
}

// What cannot be read keeps its place, so that the order of samples stays.
Bytes Packer::read(std::uint64_t sample, Downscaler* shrinker,
                   std::vector<std::uint8_t>& buffer) try {
  const Bytes image = data_.encoded(sample, buffer, retries_);
  return shrinker == nullptr ? image : shrinker->run(image);
} catch (const Undecodable& failure) {
  count_unreadable(fmt::format("decode {}: {}", data_.place(sample), failure.what()));
  return {};
} catch (const UnreadableSample& failure) {
  count_unreadable(failure.what());
  return {};
}

void Packer::count_unreadable(std::string_view why) {
  const std::uint64_t count = ++unreadable_;
  if (too_many_unreadable(count, data_.size()))
    throw Error(
        Exit::data, "--pack of " + data_.description(),
        fmt::format("more than 0.1 % of the images cannot be read; repair or remove them. {}",
                    why));
}

void Packer::tell() const {
  options_.data.tell(
      fmt::format("{}: {} of {} images packed, {:.1f} MB written{}", split_, images_.load(),
                  data_.size(), static_cast<double>(bytes_) / 1e6,
                  unreadable_ == 0 ? "" : fmt::format("; {} cannot be read", unreadable_.load())));
}

// Open for writing: NFS gives no lock of another kind. The file stays; to remove it would let two
// processes lock two files of its name.
FileDescriptor locked(const std::string& target) {
  const std::string path = target + "/.pack.lock";
  FileDescriptor lock(check_storage(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666),
                                    "open " + printable(path)));
  const int result = ::flock(lock.get(), LOCK_EX | LOCK_NB);
  if (result != 0 && errno == EWOULDBLOCK)
    throw Error(Exit::locked, "--pack into " + printable(target), "another process packs into it");
  check_storage(result, "lock " + printable(path));
  return lock;
}

// Who holds the lock knows that the packs of this host that left these are dead.
void remove_leftovers(const std::string& target) {
  std::vector<fs::path> leftovers;
  for (const auto& entry : fs::directory_iterator(target)) {
    const std::string name = entry.path().filename();
    if (name.find(".records.") != name.npos && name.ends_with(host_ending()))
      leftovers.push_back(entry.path());
  }
  for (const fs::path& leftover : leftovers) fs::remove(leftover);
}

}  // namespace

void pack(const PackOptions& options) try {
  const auto training = open_encoded(options.source, Split::training, options.data);
  const auto evaluation = open_encoded(options.source, Split::evaluation, options.data);
  fs::create_directories(options.target);
  const FileDescriptor lock = locked(options.target);
  remove_leftovers(options.target);
  Packer(options, *training, "train").run();
  if (evaluation) Packer(options, *evaluation, "val").run();
} catch (const fs::filesystem_error& failure) {
  throw Error(Exit::storage, "--pack into " + printable(options.target), failure.code().message());
}

}  // namespace ringtrain::io
