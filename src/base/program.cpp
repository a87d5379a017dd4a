#include "ringtrain/base/program.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <chrono>
#include <climits>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>

#include "ringtrain/base/error.hpp"
#include "ringtrain/base/file.hpp"
#include "ringtrain/base/hash.hpp"
#include "ringtrain/base/text.hpp"

namespace ringtrain {

namespace {

constexpr const char* started_file = "/proc/self/exe";

std::string link_target(const char* link) {
  std::array<char, PATH_MAX> path{};
  const auto length = ::readlink(link, path.data(), path.size());
  return length < 0 ? std::string() : std::string(path.data(), static_cast<std::size_t>(length));
}

// A line is "from-to mode offset device inode path", numbers in hexadecimal; empty without a file.
std::string file_mapped_at(std::uintptr_t address) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    std::istringstream words(line);
    std::uintptr_t from = 0, to = 0;
    char dash = 0;
    std::string mode, offset, device, inode, path;
    words >> std::hex >> from >> dash >> to >> mode >> offset >> device >> inode >> std::ws;
    if (address < from || address >= to) continue;
    std::getline(words, path);
    return path;
  }
  return {};
}

}  // namespace

std::string own_program() {
  const std::string file = file_mapped_at(reinterpret_cast<std::uintptr_t>(&own_program));
  return file.empty() || file == link_target(started_file) ? started_file : file;
}

std::vector<std::string> own_command() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  return words;
}

std::string for_shell(std::span<const std::string> words) {
  const auto is_plain = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           std::string_view("-_./:=,+@").find(c) != std::string_view::npos;
  };
  std::string text;
  for (const std::string& word : words) {
    if (!text.empty()) text += ' ';
    if (!word.empty() && std::ranges::all_of(word, is_plain)) {
      text += word;
      continue;
    }
    text += '\'';
    for (const char c : word)
      if (c == '\'')
        text += "'\\''";
      else
        text += c;
    text += '\'';
  }
  return printable(text);
}

std::string program_hash() {
  const std::string path = own_program();
  const FileDescriptor file(
      check_errno(::open(path.c_str(), O_RDONLY | O_CLOEXEC), "open " + path));
  struct stat status = {};
  check_errno(::fstat(file.get(), &status), "fstat " + path);
  const auto size = static_cast<std::size_t>(status.st_size);
  void* bytes = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (bytes == MAP_FAILED) check_errno(-1, "mmap " + path);
  const std::uint64_t hash = hash_bytes({static_cast<const std::byte*>(bytes), size});
  ::munmap(bytes, size);
  return hex(hash);
}

std::string own_host() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

std::string run_id() {
  static const auto began = std::chrono::system_clock::now().time_since_epoch();
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(began).count();
  return fmt::format("{}-{}-{}", seconds, ::getpid(), own_host()).substr(0, 39);
}

namespace {

// A path that is not absolute means nothing.
std::filesystem::path folder_in(const char* variable) {
  const char* const text = std::getenv(variable);
  const std::filesystem::path folder(text == nullptr ? "" : text);
  return folder.is_absolute() ? folder : std::filesystem::path();
}

}  // namespace

std::string cache_folder() {
  if (const auto cache = folder_in("XDG_CACHE_HOME"); !cache.empty()) return cache / "ringtrain";
  if (const auto home = folder_in("HOME"); !home.empty()) return home / ".cache" / "ringtrain";
  return {};
}

}  // namespace ringtrain
