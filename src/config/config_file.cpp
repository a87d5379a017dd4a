#define TOML_HEADER_ONLY 1
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <toml++/toml.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <string_view>
#include <system_error>

#include "config/option_table.hpp"
#include "ringtrain/base/error.hpp"
#include "ringtrain/base/file.hpp"
#include "ringtrain/base/text.hpp"
#include "ringtrain/config/option_values.hpp"

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

// Behind the text that begins with a quote; npos: it does not end. Between double quotes a
// backslash escapes.
std::size_t end_of_quoted(std::string_view text) {
  for (std::size_t i = 1; i < text.size(); ++i) {
    if (text[i] == text[0]) return i + 1;
    if (text[i] == '\\' && text[0] == '"') ++i;
  }
  return text.npos;
}

// A quoted value may have a '#'.
std::string without_comment(const std::string& line) {
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '#') return line.substr(0, i);
    if (line[i] != '"' && line[i] != '\'') continue;
    const std::size_t length = end_of_quoted(std::string_view(line).substr(i));
    if (length == std::string_view::npos) return line;
    i += length - 1;
  }
  return line;
}

// What TOML makes of one value; nullopt: it is none.
std::optional<toml::table> toml_of(const std::string& value) try {
  return toml::parse("value = " + value);
} catch (const toml::parse_error&) {
  return std::nullopt;
}

// A line at a time: messages then have its number, and what is nested deep takes no memory. What
// has no quotes and is no number counts as text, as in files of before.
class Reader {
 public:
  Reader(const std::string& file, const std::vector<OptionEntry>& table)
      : file_(file), table_(table), checked_(option_table(scratch_)) {}

  std::vector<FileLine> read(std::istream& text) const {
    std::vector<FileLine> all;
    std::map<std::string, int> lines;  // of the keys so far
    int number = 0;
    for (std::string line; std::getline(text, line);) {
      if (number == 0) line = without_mark(line);
      line = trimmed(without_comment(line));
      if (++number; line.empty() || line.front() == ';') continue;
      if (line.front() == '[') {
        expect_heading(line, number);
        continue;
      }
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

  void expect_heading(const std::string& line, int number) const {
    const std::string name = trimmed(line.substr(1, line.find(']') - 1));
    std::vector<std::string> groups;
    for (const OptionEntry& entry : table_)
      if (entry.in_files && (groups.empty() || groups.back() != entry.group))
        groups.push_back(entry.group);
    if (line.back() == ']' && std::ranges::count(groups, name) > 0) return;
    throw usage_error(
        fmt::format("configuration file {}, line {}, heading {}", file_, number, line),
        "there are " + joined(groups, ", ") + "; write one of them as [run], or none");
  }

  FileLine parse(const std::string& line, int number) const {
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
    try {
      find_option(checked_, parsed.key)->set(parsed.value);
    } catch (const BadValue& bad) {
      fail(number, parsed.key,
           fmt::format("{} {}{}", parsed.value, bad.what(),
                       foreign_value(parsed.key, parsed.value)));
    }
    return parsed;
  }

  const OptionEntry& entry_of(const std::string& key, int line) const {
    const OptionEntry* entry = find_option(table_, key);
    if (entry != nullptr && entry->in_files) return *entry;
    const std::string own = in_own_words({"--" + key}, table_).front().substr(2);
    if (own != key && find_option(table_, own)->in_files)
      fail(line, key, fmt::format("unknown; in ringtrain it is {}", own));
    const std::string answer = foreign_option(key, "");
    fail(line, key, "unknown; " + (answer.empty() ? option_hint(key, table_, "") : answer));
  }

  std::string value(const std::string& text, const std::string& key, int line) const {
    if (text.empty()) fail(line, key, "has no value; write key = value");
    if (text.front() == '"' || text.front() == '\'') return quoted_value(text, key, line);
    if (text.find_first_of(" \t,[]{}\"'") != text.npos)
      fail(line, key,
           fmt::format("{} is no single value; a number has a point, and text with commas, spaces "
                       "or brackets stands in quotes",
                       text));
    const auto parsed = toml_of(text);
    const auto* whole = parsed ? parsed->get_as<std::int64_t>("value") : nullptr;
    if (whole != nullptr) return std::to_string(whole->get());
    if (!parsed || !parsed->get("value")->is_floating_point()) return text;
    std::string number = text;
    std::erase(number, '_');
    return number;
  }

  std::string quoted_value(const std::string& text, const std::string& key, int line) const {
    const std::size_t end = end_of_quoted(text);
    if (end == text.npos) fail(line, key, fmt::format("{} has no closing quote", text));
    if (end < text.size())
      fail(line, key, fmt::format("{} goes on behind the closing quote", text));
    if (!is_utf8(text)) return text.substr(1, text.size() - 2);  // a path of an old file system
    const auto parsed = toml_of(text);
    if (!parsed)
      fail(line, key,
           fmt::format("{} is no text of TOML; between single quotes nothing is escaped", text));
    return parsed->get_as<std::string>("value")->get();
  }

  const std::string& file_;
  const std::vector<OptionEntry>& table_;
  Request scratch_;
  std::vector<OptionEntry> checked_;  // writes into scratch_
};

}  // namespace

std::vector<FileLine> read_config(std::istream& text, const std::string& file,
                                  const std::vector<OptionEntry>& table) {
  return Reader(file, table).read(text);
}

std::string keep_standard_input() {
  std::string text(config_bytes + 1, '\0');
  std::size_t size = 0;
  for (int got = 1; got > 0 && size < text.size(); size += static_cast<std::size_t>(got))
    got =
        check_errno(static_cast<int>(::read(STDIN_FILENO, text.data() + size, text.size() - size)),
                    "read standard input");
  const int file = check_errno(::memfd_create("config", 0), "memfd_create");
  write_all(file, std::string_view(text).substr(0, size));
  return fmt::format("/proc/{}/fd/{}", ::getpid(), file);
}

std::string why_no_config_file(const std::string& path, const std::string& name) {
  struct stat file {};
  if (::stat(path.c_str(), &file) != 0) return name + ": " + std::generic_category().message(errno);
  if (!S_ISREG(file.st_mode)) return name + ": is not a regular file";
  if (file.st_size > config_bytes)
    return fmt::format("{}: {} bytes are no configuration: it has at most 1 MiB", name,
                       file.st_size);
  return "";
}

}  // namespace ringtrain::config
