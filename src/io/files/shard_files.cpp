#include "io/files/shard_files.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <optional>
#include <system_error>
#include <tuple>

#include "ringtrain/base/error.hpp"
#include "ringtrain/base/text.hpp"
#include "ringtrain/io/files/read_retries.hpp"

namespace ringtrain::io {
namespace {

namespace fs = std::filesystem;

constexpr unsigned most_shards = 1'000'000;

[[noreturn]] void fail_shards(const fs::path& path, std::string_view reason) {
  throw Error(Exit::data, "read shards in " + printable(path.native()), reason);
}

[[noreturn]] void fail_call(const fs::path& path, int error) {
  if (may_pass(error)) throw ReadFailure(error, 0);
  fail_shards(path, std::generic_category().message(error));
}

bool skip(std::string_view& text, std::string_view start) {
  if (!text.starts_with(start)) return false;
  text.remove_prefix(start.size());
  return true;
}

bool skip_number(std::string_view& text, unsigned& number) {
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  text.remove_prefix(end - text.data());
  return failure == std::errc() && number <= most_shards;
}

struct Numbered {
  std::string name, ending = {};
  unsigned number = 0, of = 0;
};

/// What a file's name says, where it is a shard's.
std::optional<Numbered> numbered(const std::string& name, std::string_view split,
                                 std::span<const std::string_view> endings) {
  std::string_view rest = name;
  Numbered shard{name};
  const bool is_shard = skip(rest, split) && skip(rest, "-") && skip_number(rest, shard.number) &&
                        skip(rest, "-of-") && skip_number(rest, shard.of) &&
                        std::ranges::find(endings, rest) != endings.end();
  shard.ending = rest;
  return is_shard ? std::optional(shard) : std::nullopt;
}

std::vector<Numbered> all_of(const std::vector<std::string>& names, std::string_view split,
                             std::span<const std::string_view> endings) {
  std::vector<Numbered> shards;
  for (const std::string& name : names)
    if (auto shard = numbered(name, split, endings)) shards.push_back(std::move(*shard));
  std::ranges::sort(shards, {},
                    [](const Numbered& s) { return std::tuple(s.of, s.number, s.name); });
  return shards;
}

// Training without some of the data would go unnoticed.
void check_complete(const fs::path& directory, std::string_view split,
                    const std::vector<Numbered>& shards) {
  const unsigned of = shards.front().of;
  for (unsigned i = 0; i < std::max<std::size_t>(of, shards.size()); ++i) {
    if (i == shards.size() || shards[i].number > i)
      fail_shards(directory, fmt::format("{}-{:05}-of-{:05}{} is missing; {} of {} are there",
                                         split, i, of, shards[0].ending, shards.size(), of));
    if (shards[i].of != of || shards[i].number < i)
      fail_shards(
          directory,
          fmt::format("{} and {} belong to different sets; keep one set in a directory",
                      printable(shards[i == 0 ? 0 : i - 1].name), printable(shards[i].name)));
  }
}

ShardFile looked_up(const fs::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) < 0) fail_call(path, errno);
  if (!S_ISREG(status.st_mode)) fail_shards(path, "not a regular file");
  if (::faccessat(AT_FDCWD, path.c_str(), R_OK, AT_EACCESS) < 0) fail_call(path, errno);
  if (status.st_size == 0) fail_shards(path, "the file is empty (0 bytes); copy or make it again");
  return {path.filename(), static_cast<std::uint64_t>(status.st_size),
          status.st_mtim.tv_sec * 1'000'000'000 + status.st_mtim.tv_nsec};
}

std::vector<std::string> names_in(const fs::path& directory, WorkProgress* progress) try {
  at(progress, Work::list, directory.native());
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory)) {
    names.push_back(entry.path().filename());
    advance(progress);
  }
  return names;
} catch (const fs::filesystem_error& failure) {
  fail_call(directory, failure.code().value());
}

std::vector<ShardFile> find_once(const std::string& directory,
                                 std::span<const std::string_view> splits,
                                 std::span<const std::string_view> endings,
                                 WorkProgress* progress) {
  const auto names = names_in(directory, progress);
  for (const std::string_view split : splits) {
    const auto shards = all_of(names, split, endings);
    if (shards.empty()) continue;
    check_complete(directory, split, shards);
    std::vector<ShardFile> files;
    for (const Numbered& shard : shards) {
      const fs::path path = fs::path(directory) / shard.name;
      at(progress, Work::list, path.native());
      files.push_back(looked_up(path));
    }
    return files;
  }
  return {};
}

}  // namespace

std::vector<ShardFile> find_shards(const std::string& directory,
                                   std::span<const std::string_view> splits,
                                   std::span<const std::string_view> endings,
                                   WorkProgress* progress) {
  return ReadRetries().run(directory,
                           [&](bool) { return find_once(directory, splits, endings, progress); });
}

}  // namespace ringtrain::io
