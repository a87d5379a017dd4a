#include "io/dataset/shards/sharded_dataset.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "io/files/byte_source.hpp"
#include "io/image/decoder.hpp"
#include "ringtrain/base/hash.hpp"
#include "ringtrain/base/text.hpp"

namespace ringtrain::io {
namespace {

std::size_t files_to_keep_open() {
  rlimit limit{};
  return ::getrlimit(RLIMIT_NOFILE, &limit) == 0 ? std::min<rlim_t>(limit.rlim_cur / 4, 1024) : 0;
}

class ShardedDataset final : public EncodedDataset {
 public:
  ShardedDataset(ShardedData data, std::uint64_t max_pixels);

  std::uint64_t size() const override { return records().size(); }
  const std::vector<std::string>& class_names() const override {
    return data_.index.table.class_names;
  }
  int label(std::uint64_t sample) const override { return std::max(0, records()[sample].label); }
  std::string description() const override { return description_; }
  std::uint64_t manifest_hash() const override { return manifest_; }
  std::span<const std::uint8_t> encoded(std::uint64_t sample, std::vector<std::uint8_t>& buffer,
                                        ReadRetries& retries) const override;
  std::string place(std::uint64_t sample) const override {
    const std::size_t shard = shard_of(sample);
    return fmt::format("{}, record {} at byte {}", printable(path(shard)), sample - first_of(shard),
                       records()[sample].offset);
  }

 private:
  const std::vector<Record>& records() const { return data_.index.table.records; }
  std::size_t shard_of(std::uint64_t sample) const {
    return std::ranges::upper_bound(data_.index.ends, sample) - data_.index.ends.begin();
  }
  std::uint64_t first_of(std::size_t shard) const {
    return shard == 0 ? 0 : data_.index.ends[shard - 1];
  }
  std::string path(std::size_t shard) const {
    return data_.directory + "/" + data_.files[shard].name;
  }
  void check(std::size_t shard) const;
  void open_first();
  void require_label(std::uint64_t sample, std::int64_t label) const;
  void require_same(std::size_t shard, const FileDescriptor& file) const;
  void read(std::size_t shard, std::uint64_t offset, std::span<std::uint8_t> into,
            bool again) const;
  std::string describe() const;
  std::uint64_t hash() const;

  const ShardedData data_;
  std::vector<FileDescriptor> open_;  // of the first shards
  std::string description_;
  std::uint64_t manifest_ = 0;
};

ShardedDataset::ShardedDataset(ShardedData data, std::uint64_t max_pixels)
    : EncodedDataset(max_pixels), data_(std::move(data)) {
  for (std::size_t shard = 0; shard < data_.files.size(); ++shard) check(shard);
  open_first();
  description_ = describe();
  manifest_ = hash();
}

void ShardedDataset::check(std::size_t shard) const {
  const std::uint64_t first = first_of(shard);
  const std::uint64_t bytes = data_.files[shard].bytes;
  for (std::uint64_t sample = first; sample < data_.index.ends[shard]; ++sample) {
    const Record& record = records()[sample];
    if (record.offset <= bytes && record.bytes <= bytes - record.offset && record.label >= -1 &&
        record.label < classes())
      continue;
    throw Error(
        Exit::data, "read " + printable(path(shard)),
        fmt::format("record {} ({} bytes at byte {}, label {}) does not fit a file of {} "
                    "bytes and {} classes; copy or make the file again",
                    sample - first, record.bytes, record.offset, record.label, bytes, classes()));
  }
}

void ShardedDataset::open_first() try {
  const std::size_t kept = std::min(data_.files.size(), files_to_keep_open());
  ReadRetries retries;
  for (std::size_t shard = 0; shard < kept; ++shard)
    open_.push_back(retries.run(path(shard), [&](bool) {
      FileDescriptor file = open_to_read(path(shard));
      require_same(shard, file);
      return file;
    }));
} catch (const ReadFailure& failure) {
  throw Error(Exit::data, "read " + printable(path(open_.size())), failure.what());
}

std::span<const std::uint8_t> ShardedDataset::encoded(std::uint64_t sample,
                                                      std::vector<std::uint8_t>& buffer,
                                                      ReadRetries& retries) const {
  const Record& record = records()[sample];
  const std::size_t shard = shard_of(sample);
  buffer.resize(record.bytes);
  try {
    retries.run(path(shard), [&](bool again) { read(shard, record.offset, buffer, again); });
    const auto [image, label] = data_.unpack(buffer);
    if (label) require_label(sample, *label);
    if (image.empty()) throw Undecodable("the image is empty (0 bytes)");
    return image;
  } catch (const Error&) {
    throw;  // of no sample
  } catch (const ReadFailure& failure) {
    throw Error(Exit::data, "read " + place(sample),
                fmt::format("{}; the whole shard cannot be read: put it back, then start the job "
                            "again from its last checkpoint",
                            failure.what()));
  } catch (const std::runtime_error& failure) {
    throw UnreadableSample("read " + place(sample), failure.what());
  }
}

void ShardedDataset::require_label(std::uint64_t sample, std::int64_t label) const {
  const std::int32_t known = records()[sample].label;
  if (known >= 0 && label == std::int64_t{known} + data_.first_label) return;
  throw Error(
      Exit::data, "read " + place(sample),
      fmt::format("its label is {}, and {} in the index: the record was written after it was "
                  "indexed; delete the kept index (the newest .index of "
                  "$XDG_CACHE_HOME/ringtrain or ~/.cache/ringtrain), and start again",
                  label,
                  known < 0 ? "unknown" : std::to_string(std::int64_t{known} + data_.first_label)));
}

// Another file of that name has other bytes where the index says that samples are.
void ShardedDataset::require_same(std::size_t shard, const FileDescriptor& file) const {
  struct stat status {};
  if (::fstat(file.get(), &status) < 0) throw ReadFailure(errno, 0);
  const ShardFile& known = data_.files[shard];
  const std::int64_t modified_ns = status.st_mtim.tv_sec * 1'000'000'000 + status.st_mtim.tv_nsec;
  if (static_cast<std::uint64_t>(status.st_size) != known.bytes || modified_ns != known.modified_ns)
    throw Error(Exit::data, "read " + printable(path(shard)),
                "another file has taken its place since the start; start again, so that it is "
                "indexed anew");
}

// `again`: what is open may be of a file that the server has no more. A file opened anew takes its
// number, which other threads are reading from: they see the one or the other.
void ShardedDataset::read(std::size_t shard, std::uint64_t offset, std::span<std::uint8_t> into,
                          bool again) const {
  const bool kept = shard < open_.size();
  const FileDescriptor anew = kept && !again ? FileDescriptor() : open_to_read(path(shard));
  if (!kept || again) require_same(shard, anew);
  const std::size_t got = read_all_at(kept && !again ? open_[shard] : anew, offset, into);
  if (kept && again) static_cast<void>(::dup3(anew.get(), open_[shard].get(), O_CLOEXEC));
  if (got < into.size())
    throw Undecodable(fmt::format("the file ends at byte {}: it became shorter", offset + got));
}

std::string ShardedDataset::describe() const {
  std::vector<bool> seen(class_names().size());
  for (const Record& record : records())
    if (record.label >= 0) seen[record.label] = true;
  const auto empty = std::ranges::count(seen, false);
  return fmt::format("{}: {} images of {} classes{} in {} shard{} of {}", data_.kind, size(),
                     classes(), empty == 0 ? "" : fmt::format(" ({} without images)", empty),
                     data_.files.size(), data_.files.size() == 1 ? "" : "s",
                     printable(data_.directory));
}

std::uint64_t ShardedDataset::hash() const {
  std::uint64_t hash = hash_bytes(std::as_bytes(std::span(data_.index.ends)));
  for (const ShardFile& file : data_.files) hash = hash_text(file.name, hash);
  return hash_bytes(std::as_bytes(std::span(records())), hash);
}

}  // namespace

std::unique_ptr<EncodedDataset> make_sharded_dataset(ShardedData data, std::uint64_t max_pixels) {
  return std::make_unique<ShardedDataset>(std::move(data), max_pixels);
}

namespace {

class Shards {
 public:
  Shards(std::size_t count, const std::function<void(std::size_t)>& work)
      : count_(count), work_(work) {}

  void work() {
    for (std::size_t shard = claim(); shard < count_; shard = claim()) {
      std::exception_ptr failure;
      try {
        work_(shard);
      } catch (...) {
        failure = std::current_exception();
      }
      finish(shard, failure);
    }
  }

  void wait(const std::function<void(std::size_t)>& progress,
            const std::function<void(std::size_t)>& oldest) {
    using namespace std::chrono_literals;
    auto next = std::chrono::steady_clock::now() + 5s;
    std::size_t told = count_;
    std::unique_lock lock(mutex_);
    const auto is_over = [&] { return ended_ == claimed_ && (claimed_ == count_ || failed()); };
    const auto is_news = [&] {
      return is_over() || (oldest && !under_way_.empty() && *under_way_.begin() != told);
    };
    while (!is_over()) {
      if (!changed_.wait_until(lock, next, is_news)) {
        progress(ended_);
        next += 5s;
      } else if (!is_over()) {
        told = *under_way_.begin();
        oldest(told);
      }
    }
  }

  void rethrow_first() const {
    if (failed()) std::rethrow_exception(failures_.begin()->second);
  }

 private:
  bool failed() const { return !failures_.empty(); }

  std::size_t claim() {
    const std::scoped_lock lock(mutex_);
    if (failed() || claimed_ == count_) return count_;
    under_way_.insert(claimed_);
    changed_.notify_one();
    return claimed_++;
  }

  void finish(std::size_t shard, std::exception_ptr failure) {
    const std::scoped_lock lock(mutex_);
    if (failure) failures_[shard] = std::move(failure);
    ++ended_;
    under_way_.erase(shard);
    changed_.notify_one();
  }

  const std::size_t count_;
  const std::function<void(std::size_t)>& work_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t claimed_ = 0, ended_ = 0;
  std::set<std::size_t> under_way_;
  std::map<std::size_t, std::exception_ptr> failures_;
};

}  // namespace

void each_shard(std::size_t count, int threads, const std::function<void(std::size_t)>& work,
                const std::function<void(std::size_t)>& progress,
                const std::function<void(std::size_t)>& oldest) {
  Shards shards(count, work);
  {
    std::vector<std::jthread> workers;
    for (std::size_t t = 0; t < std::min(count, static_cast<std::size_t>(threads)); ++t)
      workers.emplace_back([&] { shards.work(); });
    shards.wait(progress, oldest);
  }
  shards.rethrow_first();
}

}  // namespace ringtrain::io
