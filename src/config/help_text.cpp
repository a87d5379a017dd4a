#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "config/option_table.hpp"
#include "ringtrain/base/text.hpp"
#include "ringtrain/config/option_values.hpp"
#include "ringtrain/model/zoo.hpp"

namespace ringtrain::config {
namespace {

constexpr std::size_t page_width = 80, page_indent = 29;
constexpr std::string_view summary =
    "trains an image classifier, data-parallel over all ranks of one MPI job";
constexpr std::array<std::string_view, 7> usages = {
    "train --ranks N [OPTION]... | mpirun -np N train [OPTION]...",
    "train --model list | --model NAME --print-model | --inspect FILE.h5|DIR",
    "train --print-config | --version",
    "train --predict PATH... --init-from FILE [--output FILE.csv]",
    "train --init-from FILE --export FORMAT FILE",
    "train --pack DIR OUT [--pack-short-side N]",
    "train --emit-sbatch nodes=N,... [OPTION]... > JOB; sbatch JOB",
};
constexpr std::string_view defaults =
    "Defaults are in brackets; [recipe]: what the model is usually trained with.";

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

// TOML has two quotes; between the single ones nothing is escaped. Its numbers have 63 bits.
std::string toml_value(const OptionEntry& entry) {
  std::string value = entry.value();
  const bool fits = !number_in<std::uint64_t>(value) || number_in<std::int64_t>(value);
  if (entry.bare && fits) return value;
  const bool literal = value.find_first_of("\"\\") != value.npos && value.find('\'') == value.npos;
  if (literal && printable(value) == value) return "'" + value + "'";
  if (!is_utf8(value)) return '"' + value + '"';  // a path of an old file system
  std::string text;
  for (const char c : value) {
    const bool control = static_cast<unsigned char>(c) < 0x20 || c == 0x7F;
    if (c == '"' || c == '\\') text += '\\';
    text += control ? fmt::format("\\u{:04X}", static_cast<int>(c)) : std::string(1, c);
  }
  return '"' + text + '"';
}

template <class Line>
std::string by_group(const std::vector<OptionEntry>& table, std::string_view before,
                     std::string_view behind, Line line) {
  std::string text;
  std::string_view group;
  for (const OptionEntry& entry : table) {
    if (entry.group != group) text += fmt::format("\n{}{}{}\n", before, entry.group, behind);
    group = entry.group;
    text += line(entry);
  }
  return text;
}

// What a user may type as the value of an option, as far as the table says it: whole values, and
// beginnings that end in a colon.
std::vector<std::string> known_values(const OptionEntry& entry) {
  if (entry.name == "model") {
    std::vector<std::string> models = model::model_names();
    models.push_back("list");
    return models;
  }
  const bool in_argument = entry.argument.find('|') != entry.argument.npos;
  std::vector<std::string> values;
  for (std::string& word : split(in_argument ? entry.argument : entry.description, '|')) {
    word.erase(0, word.find_first_not_of(' '));
    word.resize(std::min(word.size(), word.find_first_of(" ABCDEFGHIJKLMNOPQRSTUVWXYZ")));
    if (!word.empty()) values.push_back(std::move(word));
  }
  return values.size() > 1 || in_argument ? values : std::vector<std::string>();
}

bool takes_file(const OptionEntry& entry) {
  return entry.argument.find("FILE") != std::string::npos;
}
bool takes_folder(const OptionEntry& entry) {
  return entry.argument.find("DIR") != std::string::npos;
}

// For roff: no hyphen is a minus, and no line is a request.
std::string roff(std::string_view text) {
  std::string escaped = text.starts_with('.') || text.starts_with('\'') ? "\\&" : "";
  for (const char c : text) escaped += c == '-' ? "\\-" : c == '\\' ? "\\e" : std::string(1, c);
  return escaped;
}

std::string man_entry(const OptionEntry& entry) {
  std::string argument = entry.argument.empty() ? "" : " \\fI" + roff(entry.argument) + "\\fR";
  return fmt::format(".TP\n\\fB{}\\fR{}\n{}\n", roff("--" + entry.name), argument,
                     roff(entry.description + shown_default(entry)));
}

std::string bash_entry(const OptionEntry& entry) {
  const std::vector<std::string> values = known_values(entry);
  std::string words;
  if (!values.empty()) words += fmt::format(" -W '{}'", joined(values, " "));
  if (takes_folder(entry)) words += " -d";
  if (takes_file(entry)) words += " -f";
  if (words.empty()) words = " -W ''";
  return fmt::format("    --{}) words=({}) ;;\n", entry.name, words.substr(1));
}

constexpr std::string_view bash_before = R"(# bash completion for ringtrain
_ringtrain() {
  local current=${COMP_WORDS[COMP_CWORD]} option=${COMP_WORDS[COMP_CWORD - 1]} words=()
  [[ $current != [=:] ]] || { option=$current current=; }
  if [[ $option == : ]]; then # behind images: and the like
    COMPREPLY=($(compgen -d -- "$current"))
    compopt -o filenames
    return
  fi
  [[ $option != = ]] || option=${COMP_WORDS[COMP_CWORD - 2]}
  case $option in
)";
constexpr std::string_view bash_after = R"(    *) words=(-W "$_ringtrain_options") ;;
  esac
  COMPREPLY=($(compgen "${words[@]}" -- "$current"))
  [[ ${words[*]} != *-[df]* ]] || compopt -o filenames
  [[ ${#COMPREPLY[@]} != 1 || ${COMPREPLY[0]} != *: ]] || compopt -o nospace
}
complete -F _ringtrain train ringtrain
)";

std::string bash_completion(const std::vector<OptionEntry>& table) {
  std::string names, cases;
  for (const OptionEntry& entry : table) {
    names += (names.empty() ? "--" : " --") + entry.name;
    if (!entry.is_flag()) cases += bash_entry(entry);
  }
  return fmt::format("{}{}_ringtrain_options='{}'\n", bash_before, cases + std::string(bash_after),
                     names);
}

// Within single quotes of zsh and fish.
std::string quoted(std::string_view text, std::string_view escaped) {
  std::string inner;
  for (const char c : text) {
    if (escaped.find(c) != escaped.npos) inner += '\\';
    inner += c == '\'' ? "'\\''" : std::string(1, c);
  }
  return inner;
}

std::string zsh_entry(const OptionEntry& entry) {
  const std::string described =
      fmt::format("'--{}[{}]", entry.name, quoted(entry.description, "[]\\:"));
  if (entry.is_flag()) return described + "'";
  const std::vector<std::string> values = known_values(entry);
  std::string action;
  if (!values.empty())
    action = fmt::format("({})", quoted(joined(values, " "), ":"));
  else if (takes_file(entry))
    action = "_files";
  else if (takes_folder(entry))
    action = "_files -/";
  std::string spec = fmt::format("{}:{}:{}'", described, quoted(entry.argument, "\\:"), action);
  if (entry.argument == "DIR OUT") spec.insert(spec.size() - 1, ":OUT:_files -/");
  if (entry.argument.ends_with(" FILE")) spec.insert(spec.size() - 1, ":FILE:_files");
  return spec;
}

std::string zsh_completion(const std::vector<OptionEntry>& table) {
  std::string text = "#compdef train ringtrain\n_arguments";
  for (const OptionEntry& entry : table) text += " \\\n  " + zsh_entry(entry);
  return text + "\n";
}

std::string fish_entry(const OptionEntry& entry, std::string_view command) {
  std::string line = fmt::format("complete -c {} -l {} -d '{}'", command, entry.name,
                                 quoted(entry.description, "\\"));
  if (entry.is_flag()) return line + " -f\n";
  const std::vector<std::string> values = known_values(entry);
  const bool paths = takes_file(entry) || takes_folder(entry);
  line += paths ? " -r" : " -x";
  if (!values.empty()) line += fmt::format(" -a '{}'", joined(values, " "));
  return line + "\n";
}

std::string fish_completion(const std::vector<OptionEntry>& table) {
  std::string text;
  for (const std::string_view command : {"train", "ringtrain"})
    for (const OptionEntry& entry : table) text += fish_entry(entry, command);
  return text;
}

}  // namespace

std::string help_text(const std::vector<OptionEntry>& table) {
  return fmt::format("train: {}.\n\nusage: {}\n{}\n{}\n", summary, joined(usages, "\n       "),
                     by_group(table, "", "", help_line), defaults);
}

std::string toml_text(const std::vector<OptionEntry>& table) {
  std::vector<OptionEntry> written = table;
  std::erase_if(written, [](const OptionEntry& entry) { return !entry.in_files; });
  const auto line = [](const OptionEntry& entry) {
    const std::string unset = entry.unset == "recipe" ? "the network's" : entry.unset;
    return entry.value().empty() ? fmt::format("# {}: {}\n", entry.name, unset)
                                 : fmt::format("{} = {}\n", entry.name, toml_value(entry));
  };
  return by_group(written, "[", "]", line).substr(1);
}

std::string man_page(const std::vector<OptionEntry>& table, std::string_view version) {
  std::string text = fmt::format(
      ".TH TRAIN 1 \"\" \"ringtrain {}\" \"User Commands\"\n"
      ".SH NAME\ntrain, ringtrain \\- {}\n.SH SYNOPSIS\n.nf\n",
      roff(version), roff(summary));
  for (const std::string_view usage : usages) text += roff(usage) + "\n";
  text += fmt::format(".fi\n.SH OPTIONS\n{}\n", roff(defaults));
  text += by_group(table, ".SS ", "", man_entry);
  return text +
         ".SH SEE ALSO\nmpirun(1), sbatch(1); the documentation beside the sources: README.md and "
         "docs/\n";
}

std::string completion(const std::vector<OptionEntry>& table, Shell shell) {
  if (shell == Shell::bash) return bash_completion(table);
  return shell == Shell::zsh ? zsh_completion(table) : fish_completion(table);
}

}  // namespace ringtrain::config
