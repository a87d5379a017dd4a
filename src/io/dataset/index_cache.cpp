#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <exception>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <thread>

#include "io/dataset/shards/sharded_dataset.hpp"
#include "io/files/file_bytes.hpp"
#include "io/image/decoder.hpp"
#include "ringtrain/base/atomic_file.hpp"
#include "ringtrain/base/file.hpp"
#include "ringtrain/base/hash.hpp"
#include "ringtrain/base/text.hpp"

namespace ringtrain::io {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view cache_magic = "ringtrain tfrecord index 2\n";

// A cache is: cache_magic, key, how many shards, the end of each, the table, which has a checksum;
// and the checksum of what is before the table.
std::uint64_t key_of(const fs::path& directory, const std::vector<ShardFile>& files) {
  std::uint64_t key = hash_text(directory.native(), hash_text(cache_magic));
  for (const ShardFile& file : files)
    key = hash_text(fmt::format("{} {} {}", file.name, file.bytes, file.modified_ns), key);
  return key;
}

std::vector<std::uint64_t> head_of(const ShardIndex& index, std::uint64_t key) {
  std::vector<std::uint64_t> head{key, index.ends.size()};
  head.insert(head.end(), index.ends.begin(), index.ends.end());
  head.push_back(hash_bytes(std::as_bytes(std::span(head))));
  return head;
}

// Null where the file is damaged, of other data, or not there.
std::optional<ShardIndex> load(const fs::path& file, std::uint64_t key, std::size_t shards,
                               WorkProgress* progress) try {
  at(progress, Work::index, file.native());
  std::vector<std::uint8_t> bytes;
  read_file(file, bytes, progress);
  const std::size_t head_bytes = (shards + 3) * sizeof(std::uint64_t);
  if (bytes.size() < cache_magic.size() + head_bytes) return std::nullopt;
  std::vector<std::uint64_t> head(shards + 3);
  std::memcpy(head.data(), &bytes[cache_magic.size()], head_bytes);
  ShardIndex index{{head.begin() + 2, head.end() - 1}, {}};
  if (std::memcmp(bytes.data(), cache_magic.data(), cache_magic.size()) != 0 ||
      head != head_of(index, key))
    return std::nullopt;
  index.table = decode_table(std::span(bytes).subspan(cache_magic.size() + head_bytes));
  return index;
} catch (const std::runtime_error&) {
  return std::nullopt;
}

void save(const fs::path& file, const ShardIndex& index, std::uint64_t key) {
  const auto write_whole = [&](std::ostream& out) {
    const auto write = [&](const auto& values) {
      const auto bytes = std::as_bytes(std::span(values));
      out.write(reinterpret_cast<const char*>(bytes.data()),
                static_cast<std::streamsize>(bytes.size()));
    };
    write(cache_magic);
    write(head_of(index, key));
    write(encode_table(index.table));
  };
  remove_left_over(file);
  const std::string reason = write_atomically(file, Durable::in_a_while, write_whole);
  if (!reason.empty()) throw Error(Exit::storage, "write " + printable(file.native()), reason);
}

// Held until it is closed. Where a file system has no locks, each process makes its own index. Null
// after waiting for others.
FileDescriptor locked(const fs::path& file, const DatasetOptions& options) {
  using namespace std::chrono_literals;
  const std::string path = file.native() + ".lock";
  FileDescriptor lock(check_storage(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600),
                                    "open " + printable(path)));
  int tries = 0;
  for (; ::flock(lock.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK; ++tries) {
    if (tries == 50)
      options.tell("waiting for another process to index the data; it holds " + printable(path));
    if (tries >= 10 * options.index_wait_s)
      throw Error(
          Exit::locked, "lock " + printable(path),
          fmt::format(
              "another process has held it for more than {} s; end that one if it is stuck, "
              "or delete the file if there is none",
              options.index_wait_s));
    advance(options.progress);  // the other process has a limit, too, and this wait ends
    std::this_thread::sleep_for(100ms);
  }
  // Who had it could not keep its index. To make ours under the lock would make processes queue.
  return tries > 0 ? FileDescriptor() : std::move(lock);
}

}  // namespace

ShardIndex cached_index(const std::string& directory, const std::vector<ShardFile>& files,
                        const DatasetOptions& options, const std::function<ShardIndex()>& make) {
  if (options.cache_folder.empty()) return make();
  const fs::path home = fs::absolute(directory).lexically_normal();
  const std::uint64_t key = key_of(home, files);
  const fs::path file =
      fs::path(options.cache_folder) /
      fmt::format("tfrecord-{}.index", hex(hash_text(files[0].name, hash_text(home.native()))));
  const auto known = [&] { return load(file, key, files.size(), options.progress); };
  if (auto index = known()) return std::move(*index);

  FileDescriptor lock;
  std::string unkept;
  try {
    fs::create_directories(options.cache_folder);
    lock = locked(file, options);
  } catch (const std::exception& failure) {
    unkept = failure.what();
  }
  if (auto index = known()) return std::move(*index);
  ShardIndex index = make();
  try {
    at(options.progress, Work::index, file.native());
    if (unkept.empty()) save(file, index, key);
  } catch (const std::exception& failure) {
    unkept = failure.what();
  }
  if (!unkept.empty())
    options.tell(fmt::format("the index of {} is not kept and will be made again at each start: {}",
                             printable(directory), printable(unkept)));
  return index;
}

}  // namespace ringtrain::io
