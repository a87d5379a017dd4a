#include "model/model_file/parse.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <variant>

#include "model/model_file/operations.hpp"
#include "ringtrain/base/error.hpp"
#include "ringtrain/base/text.hpp"
#include "ringtrain/model/model_file.hpp"

namespace ringtrain::model {

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

std::vector<std::string> lines_of(std::string_view text) {
  constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";
  if (text.starts_with(byte_order_mark)) text.remove_prefix(byte_order_mark.size());
  return split(text, '\n');
}

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

std::string canonical(std::string_view text) {
  std::string result;
  bool above = true;  // the line `model`
  for (std::string_view line : lines_of(text)) {
    line = line.substr(0, line.find_last_not_of(spaces) + 1);
    const std::vector<std::string> words = words_of(line);
    if (!words.empty())
      result += fmt::format("{}\n", fmt::join(words, " "));
    else if (above && line.starts_with('#'))
      result += fmt::format("{}\n", line);
    if (!words.empty()) above = false;
  }
  return result;
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

double number_or_quotient(const std::string& text, double low, double high) {
  const std::size_t slash = text.find('/');
  if (slash == text.npos) return number_between(text, low, high);
  const auto above = number_in<double>(text.substr(0, slash));
  const auto below = number_in<double>(text.substr(slash + 1));
  const double quotient = above && below ? *above / *below : std::nan("");
  // written so that a NaN fails too
  if (quotient >= low && quotient <= high) return quotient;
  throw BadValue(fmt::format("must be a number, or a quotient of two, from {} to {}", low, high));
}

void Values::expect_only(const std::vector<std::string>& names) const {
  for (const auto& [option, text] : texts_) {
    if (std::ranges::find(names, option) != names.end()) continue;
    const std::string why = names.empty()
                                ? word_ + " takes no options"
                                : word_ + " has no such option" + did_you_mean(option, names);
    throw Error(Exit::usage, brief(option + "=" + text), why);
  }
}

void Values::expect_only(std::string_view names) const {
  expect_only(names.empty() ? std::vector<std::string>{} : split(names, ' '));
}

void Values::need(const std::string& option) const {
  if (!has(option)) throw Error(Exit::usage, word_, fmt::format("needs {}=...", option));
}

std::string Values::text(const std::string& option, const std::string& usual) const {
  const auto found = texts_.find(option);
  return found == texts_.end() ? usual : found->second;
}

int Values::whole(const std::string& option, int low, int high, std::optional<int> usual) const {
  if (usual && !has(option)) return *usual;
  need(option);
  return read(option, "", [&](const std::string& text) {
    return static_cast<int>(whole_between(text, low, high));
  });
}

double Values::number(const std::string& option, double low, double high, double usual) const {
  if (!has(option)) return usual;
  return read(option, "",
              [&](const std::string& text) { return number_or_quotient(text, low, high); });
}

std::optional<double> Values::number_or_none(const std::string& option, double low, double high,
                                             std::optional<double> usual) const {
  if (!has(option)) return usual;
  if (text(option, "") == "none") return std::nullopt;
  return number(option, low, high, 0);
}

std::vector<double> Values::numbers(const std::string& option, char separator, double low,
                                    double high, const std::vector<double>& usual) const {
  if (!has(option)) return usual;
  return read(option, "", [&](const std::string& text) {
    std::vector<double> numbers;
    for (const std::string& part : split(text, separator))
      numbers.push_back(number_or_quotient(part, low, high));
    if (numbers.size() != usual.size())
      throw BadValue(fmt::format("must be {} numbers with '{}' between", usual.size(), separator));
    return numbers;
  });
}

bool Values::yes(const std::string& option, bool usual) const {
  return choice(option, {"yes", "no"}, usual ? "yes" : "no") == "yes";
}

std::string Values::choice(const std::string& option, const std::vector<std::string>& words,
                           const std::string& usual) const {
  return read(option, usual, [&](const std::string& text) {
    if (std::ranges::find(words, text) != words.end()) return text;
    throw BadValue(fmt::format("must be one of {}", fmt::join(words, ", ")));
  });
}

Values::Extent Values::extent(const std::string& option, int high) const {
  need(option);
  return read(option, "", [&](const std::string& text) -> Extent {
    const std::vector<std::string> sides = split(text, 'x');
    if (sides.size() > 2) throw BadValue("must be one number, or HEIGHTxWIDTH");
    const auto side = [&](const std::string& s) {
      return static_cast<int>(whole_between(s, 1, high));
    };
    return {side(sides.front()), side(sides.back())};
  });
}

namespace {

constexpr int most_dropouts = 256;  // their random numbers are keyed by 8 bits of layer

std::optional<Fault> unused_result(const Graph& graph) {
  std::vector<bool> read(graph.tensors.size());
  for (const Node& node : graph.nodes)
    for (const compute::TensorId id : node.inputs) read[id] = true;
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    if (node.output != compute::no_tensor && !read[node.output])
      return Fault{n, node.name, "no line reads its result; a network ends with `loss`"};
  }
  return std::nullopt;
}

std::optional<Fault> wrong_counts(const Graph& graph) {
  int losses = 0, dropouts = 0;
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    const Operation& operation = graph.nodes[n].operation;
    const auto* loss = std::get_if<Loss>(&operation);
    if (loss != nullptr && !loss->auxiliary && ++losses > 1)
      return Fault{n, "loss", "the second one; say auxiliary=yes of all but one"};
    if (std::holds_alternative<DropoutLayer>(operation) && ++dropouts > most_dropouts)
      return Fault{n, "dropout", fmt::format("a network has at most {}", most_dropouts)};
  }
  if (losses == 1) return std::nullopt;
  return Fault{graph.nodes.size() - 1, "no loss", "a network ends with `loss`"};
}

std::optional<Fault> wrong_size(const Graph& graph) {
  const Fault last{graph.nodes.size() - 1, "", ""};
  const auto count = double(graph.parameter_count());
  if (count == 0) return Fault{last.node, "no parameters", "there is nothing to train"};
  if (count <= most_values) return std::nullopt;
  return Fault{last.node, fmt::format("{:.0f} parameters", count),
               fmt::format("a network has at most {:.0f}", most_values)};
}

}  // namespace

std::optional<Fault> first_fault(const Graph& graph) {
  if (auto fault = unused_result(graph)) return fault;
  if (auto fault = wrong_counts(graph)) return fault;
  return wrong_size(graph);
}

}  // namespace ringtrain::model
