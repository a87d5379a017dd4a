#include "ringtrain/base/program.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <climits>
#include <cstdint>
#include <fstream>
#include <sstream>
#include <string_view>

#include "ringtrain/base/printable.hpp"

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

}  // namespace ringtrain
