#include "model/model_file/line.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "ringtrain/base/error.hpp"
#include "ringtrain/base/text.hpp"

namespace ringtrain {
namespace {

constexpr std::string_view spaces = " \t\r";
constexpr std::int64_t last_of_range = 9999;

std::vector<std::string> words_of(std::string_view text) {
  text = text.substr(0, text.find('#'));
  std::vector<std::string> words;
  for (;;) {
    text.remove_prefix(std::min(text.find_first_not_of(spaces), text.size()));
    if (text.empty()) return words;
    const std::size_t end = std::min(text.find_first_of(spaces), text.size());
    if (end > longest_word)
      throw Error(Exit::usage, brief(text.substr(0, end)),
                  fmt::format("is longer than the {} characters of a word", longest_word));
    words.emplace_back(text.substr(0, end));
    text.remove_prefix(end);
  }
}

bool is_name(std::string_view text) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.';
  };
  return !text.empty() && std::ranges::all_of(text, allowed) && !text.starts_with('.') &&
         !text.starts_with('-') && !text.ends_with('.') && text.find("..") == text.npos;
}

void add_option(Line& line, const std::string& word) {
  const std::size_t equals = word.find('=');
  const std::string option = word.substr(0, equals), value = word.substr(equals + 1);
  if (option.empty() || value.empty())
    throw Error(Exit::usage, brief(word), "an option is written without spaces, such as stride=2");
  if (!line.options.emplace(option, value).second)
    throw Error(Exit::usage, brief(word), brief(option) + " is given twice on this line");
}

std::int64_t end_of_range(const std::string& name, std::size_t from, std::size_t to) try {
  return whole_between(name.substr(from, to - from), 0, last_of_range);
} catch (const BadValue& bad) {
  throw Error(Exit::usage, brief(name), std::string("each end of the range ") + bad.what());
}

}  // namespace

std::optional<Line> read_line(std::string_view text, int number) {
  std::vector<std::string> words = words_of(text);
  if (words.empty()) return std::nullopt;
  Line line;
  line.number = number;
  if (words.size() > 1 && words[1] == "=") {
    if (words.size() == 2) throw Error(Exit::usage, brief(words[0]) + " =", "names no operation");
    line.name = words[0];
    words.erase(words.begin(), words.begin() + 2);
  }
  line.word = words[0];
  if (line.word.find('=') != line.word.npos)
    throw Error(Exit::usage, brief(line.word),
                "a line is [NAME =] OPERATION [INPUT ...] [OPTION=VALUE ...]");
  for (auto word = words.begin() + 1; word != words.end(); ++word) {
    if (word->find('=') == word->npos)
      line.inputs.push_back(*word);
    else
      add_option(line, *word);
  }
  return line;
}

void check_name(std::string_view text) {
  if (!is_name(text))
    throw Error(Exit::usage, brief(text),
                "is no name; names are made of letters, digits, '_', '-' and single '.' inside");
}

std::vector<std::string> expanded(const std::string& name) {
  const std::size_t open = name.find('{');
  if (open == name.npos) {
    check_name(name);
    return {name};
  }
  const std::size_t dots = name.find("..", open), close = name.find('}', open);
  if (dots == name.npos || close == name.npos || dots > close)
    throw Error(Exit::usage, brief(name), "a range of names is written stage.{1..3}");
  std::vector<std::string> names;
  const std::int64_t first = end_of_range(name, open + 1, dots),
                     last = end_of_range(name, dots + 2, close);
  for (std::int64_t i = first; i <= last; ++i) {
    names.push_back(name.substr(0, open) + std::to_string(i) + name.substr(close + 1));
    check_name(names.back());
  }
  if (names.empty()) throw Error(Exit::usage, brief(name), "the range is empty");
  return names;
}

}  // namespace ringtrain
