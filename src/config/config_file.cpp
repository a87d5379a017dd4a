#include <fmt/core.h>
#include <sys/stat.h>

#include <cerrno>
#include <map>
#include <string_view>
#include <system_error>

#include "config/option_table.hpp"
#include "ringtrain/base/error.hpp"

namespace ringtrain::config {
namespace {

constexpr std::int64_t config_bytes = 1 << 20;

std::string trimmed(const std::string& text) {
  constexpr std::string_view spaces = " \t\n\v\f\r";
  const std::size_t first = text.find_first_not_of(spaces);
  return first == text.npos ? "" : text.substr(first, text.find_last_not_of(spaces) + 1 - first);
}

std::string without_quotes(const std::string& text) {
  const bool quoted = text.size() > 1 && (text.front() == '"' || text.front() == '\'') &&
                      text.back() == text.front();
  return quoted ? text.substr(1, text.size() - 2) : text;
}

// A quoted value may have a '#'.
std::string without_comment(const std::string& line) {
  char quote = 0;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (c == '#' && quote == 0) return line.substr(0, i);
    if (c == quote)
      quote = 0;
    else if (quote == 0 && (c == '"' || c == '\''))
      quote = c;
  }
  return line;
}

// Not CLI11's own reader of TOML: that makes lists of values with commas or spaces, of which an
// option takes the last.
class Reader {
 public:
  Reader(const std::string& file, const std::vector<OptionEntry>& table)
      : file_(file), table_(table) {}

  std::vector<FileLine> read(std::istream& text) const {
    std::vector<FileLine> all;
    std::map<std::string, int> lines;  // of the keys so far
    int number = 0;
    for (std::string line; std::getline(text, line);) {
      if (number == 0) line = without_mark(line);
      line = trimmed(without_comment(line));
      if (++number; line.empty() || line.front() == ';') continue;
      all.push_back(parse(line, number));
      const auto [first, is_new] = lines.emplace(all.back().key, number);
      if (!is_new)
        fail(number, all.back().key,
             fmt::format("line {} has it, too; keep one of them", first->second));
    }
    if (text.bad())
      throw usage_error(fmt::format("configuration file {}, after line {}", file_, number),
                        "cannot be read to its end; look at the disk or the mount (dmesg, df)");
    return all;
  }

 private:
  [[noreturn]] void fail(int line, const std::string& key, std::string_view why) const {
    throw usage_error(fmt::format("configuration file {}, line {}, key '{}'", file_, line, key),
                      why);
  }

  // Editors on Windows begin a file with a byte order mark.
  std::string without_mark(const std::string& line) const {
    if (line.starts_with("\xff\xfe") || line.starts_with("\xfe\xff"))
      throw usage_error("configuration file " + file_, "is in UTF-16; save it as UTF-8");
    return line.starts_with("\xef\xbb\xbf") ? line.substr(3) : line;
  }

  FileLine parse(const std::string& line, int number) const {
    if (line.front() == '[')
      throw usage_error(
          fmt::format("configuration file {}, line {}, section {}", file_, number, line),
          "there are no sections; write all keys without any");
    const std::size_t equals = line.find('=');
    FileLine parsed{.key = without_quotes(trimmed(line.substr(0, equals))), .value = {}};
    const OptionEntry& entry = entry_of(parsed.key, number);
    if (equals != line.npos)
      parsed.value = value(trimmed(line.substr(equals + 1)), parsed.key, number);
    else if (entry.is_flag())
      parsed.value = "true";
    else
      fail(number, parsed.key, "has no value; write key = value");
    if (entry.is_flag() && parsed.value != "true" && parsed.value != "false")
      fail(number, parsed.key, "must be true or false");
    return parsed;
  }

  const OptionEntry& entry_of(const std::string& key, int line) const {
    const OptionEntry* entry = find_option(table_, key);
    if (entry == nullptr || !entry->in_files)
      fail(line, key, "unknown; " + option_hint(key, table_, ""));
    return *entry;
  }

  std::string value(const std::string& text, const std::string& key, int line) const {
    if (text.empty()) fail(line, key, "has no value; write key = value");
    const char quote = text.front();
    if (quote != '"' && quote != '\'') {
      if (text.find_first_of(" \t,[]\"'") == text.npos) return text;
      fail(line, key,
           fmt::format("{} is no single value; a number has a point, and text with commas, spaces "
                       "or brackets stands in quotes",
                       text));
    }
    const std::size_t end = text.find(quote, 1);
    if (end == text.npos) fail(line, key, fmt::format("{} has no closing quote", text));
    if (end + 1 < text.size())
      fail(line, key, fmt::format("{} goes on behind the closing quote", text));
    return text.substr(1, end - 1);
  }

  const std::string& file_;
  const std::vector<OptionEntry>& table_;
};

}  // namespace

std::vector<FileLine> read_config(std::istream& text, const std::string& file,
                                  const std::vector<OptionEntry>& table) {
  return Reader(file, table).read(text);
}

std::string why_no_config_file(const std::string& path) {
  struct stat file {};
  if (::stat(path.c_str(), &file) != 0) return path + ": " + std::generic_category().message(errno);
  if (!S_ISREG(file.st_mode)) return path + ": is not a regular file";
  if (file.st_size > config_bytes)
    return fmt::format("{}: {} bytes are no configuration: it has at most 1 MiB", path,
                       file.st_size);
  return "";
}

}  // namespace ringtrain::config
