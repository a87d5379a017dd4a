#include <fmt/core.h>

#include "train/option_table.hpp"
#include "train/text.hpp"

namespace ringtrain {
namespace {

constexpr std::size_t page_width = 80, page_indent = 29;
constexpr std::string_view intro =
    "train: trains an image classifier, data-parallel over all ranks of one MPI job.\n"
    "\n"
    "usage: mpirun -np N train [OPTION]...\n"
    "       train --model list | --inspect FILE.h5 | --print-config | --version\n"
    "       train --pack DIR OUT [--pack-short-side N]\n"
    "       train --emit-sbatch nodes=N,... [OPTION]... > JOB; sbatch JOB\n";
constexpr std::string_view outro =
    "\nDefaults are in brackets; [recipe]: what the model is usually trained with.\n";

std::string shown_default(const OptionEntry& entry) {
  if (entry.is_flag()) return "";
  const std::string value = entry.value();
  return fmt::format(" [{}]", value.empty() ? entry.unset : value);
}

std::string help_line(const OptionEntry& entry) {
  std::string line = fmt::format("  --{} {}", entry.name, entry.argument);
  if (line.size() + 1 > page_indent)
    line += "\n" + std::string(page_indent, ' ');
  else
    line.resize(page_indent, ' ');
  return line + wrapped(entry.description + shown_default(entry), page_indent, page_width) + "\n";
}

// TOML has two quotes; which one depends on what is in the text.
std::string toml_value(const OptionEntry& entry) {
  const std::string value = entry.value();
  if (entry.bare) return value;
  const char quote = value.find('"') == value.npos ? '"' : '\'';
  return quote + value + quote;
}

template <class Line>
std::string by_group(const std::vector<OptionEntry>& table, std::string_view prefix, Line line) {
  std::string text;
  std::string_view group;
  for (const OptionEntry& entry : table) {
    if (entry.group != group) text += fmt::format("\n{}{}\n", prefix, entry.group);
    group = entry.group;
    text += line(entry);
  }
  return text;
}

}  // namespace

std::string help_text(const std::vector<OptionEntry>& table) {
  return std::string(intro) + by_group(table, "", help_line) + std::string(outro);
}

std::string toml_text(const std::vector<OptionEntry>& table) {
  std::vector<OptionEntry> written = table;
  std::erase_if(written, [](const OptionEntry& entry) { return !entry.in_files; });
  const auto line = [](const OptionEntry& entry) {
    return entry.value().empty() ? fmt::format("# {}: {}\n", entry.name, entry.unset)
                                 : fmt::format("{} = {}\n", entry.name, toml_value(entry));
  };
  return by_group(written, "# ", line).substr(1);
}

}  // namespace ringtrain
