#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "model/model_file/operations.hpp"
#include "model/model_file/recipe_lines.hpp"
#include "ringtrain/base/error.hpp"
#include "ringtrain/base/text.hpp"
#include "ringtrain/model/model_file.hpp"

namespace ringtrain::model {
namespace {

bool has_word(std::string_view words, std::string_view option) {
  const std::vector<std::string> all = split(words, ' ');
  return std::ranges::find(all, option) != all.end();
}

// The line that says `option`.
std::string line_of(const std::string& option) {
  if (has_word(recipe_options, option)) return "recipe";
  if (has_word(image_options, option)) return "images";
  if (has_word(input_options, option)) return "input";
  const std::string all = fmt::format("{} {} {}", recipe_options, image_options, input_options);
  throw Error(
      Exit::usage, brief("--recipe " + option),
      "is no option of the lines recipe, images and input" + did_you_mean(option, split(all, ' ')));
}

// Options that say the same in another way go, too.
bool is_replaced(const std::string& option, const std::map<std::string, std::string>& by) {
  const bool scales =
      by.contains("resize") || by.contains("crop-share") || by.contains("evaluation");
  return by.contains(option) || (scales && (option == "resize" || option == "crop-share"));
}

// `line` without the options that `by` replaces. `crop` is what it said of that.
std::string without_replaced(const std::string& line, const std::map<std::string, std::string>& by,
                             std::string& crop) {
  const std::size_t comment = std::min(line.find('#'), line.size());
  std::string kept, head = line.substr(0, comment);
  std::ranges::replace_if(
      head, [](char c) { return c == '\t' || c == '\r'; }, ' ');
  for (const std::string& word : split(head, ' ')) {
    const std::size_t equals = std::min(word.find('='), word.size());
    const std::string option = word.substr(0, equals);
    if (equals == word.size() || !is_replaced(option, by)) {
      if (!word.empty()) kept += (kept.empty() ? "" : " ") + word;
    } else if (option == "crop") {
      crop = word.substr(equals + 1);
    }
  }
  return kept + (comment < line.size() ? " " + line.substr(comment) : "");
}

// A size alone leaves the mode as it was.
std::string crop_of(const std::string& wanted, const std::string& before) {
  const std::string mode = before.substr(0, before.find(':'));
  const bool is_size = number_in<int>(wanted).has_value();
  return is_size && !mode.empty() && !number_in<int>(mode) ? mode + ":" + wanted : wanted;
}

std::map<std::string, std::string> options_in(std::string_view words) {
  const auto line = read_line("recipe " + std::string(words), 0);
  if (!line->inputs.empty() || !line->name.empty())
    throw Error(Exit::usage, brief("--recipe " + std::string(words)),
                "is written: OPTION=VALUE ..., as in the lines recipe, images and input");
  return line->options;
}

bool is_frame(const std::optional<Line>& line) {
  return line && line->name.empty() &&
         (line->word == "recipe" || line->word == "images" || line->word == "input");
}

// Adds to the line `input`, and lines behind the line `model`.
std::vector<std::string> with_said(const std::vector<std::string>& lines,
                                   std::map<std::string, std::string> said) {
  std::vector<std::string> result;
  for (std::string each : lines) {
    const auto line = read_line(each, 0);
    const bool is_input = line && line->name.empty() && line->word == "input";
    if (is_input) each.insert(std::min(each.find(" #"), each.size()), said["input"]);
    if (!is_frame(line) || is_input || !line->options.empty()) result.push_back(each);
    if (line && line->word == "model")
      for (const char* word : {"recipe", "images"})
        if (said.contains(word)) result.push_back(word + said[word]);
  }
  return result;
}

}  // namespace

std::string with_words(std::string_view text, std::string_view words) {
  std::map<std::string, std::string> options = options_in(words);
  std::vector<std::string> lines = lines_of(text);
  std::string crop;
  for (std::string& each : lines)
    if (is_frame(read_line(each, 0))) each = without_replaced(each, options, crop);
  if (const auto wanted = options.find("crop"); wanted != options.end())
    wanted->second = crop_of(wanted->second, crop);
  std::map<std::string, std::string> said;  // " OPTION=VALUE ...", by line
  for (const auto& [option, value] : options) said[line_of(option)] += " " + option + "=" + value;
  return fmt::format("{}", fmt::join(with_said(lines, std::move(said)), "\n"));
}

}  // namespace ringtrain::model
