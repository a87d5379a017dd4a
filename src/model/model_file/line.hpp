#pragma once
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ringtrain {

/// One line of a model file: [NAME =] WORD [INPUT ...] [OPTION=VALUE ...].
struct Line {
  int number = 0;    ///< from 1
  std::string name;  ///< empty: the line has none
  std::string word;
  std::vector<std::string> inputs;
  std::map<std::string, std::string> options;
};

/// Reads one line; nothing where it is blank or a comment. Throws Error (usage) without the place.
std::optional<Line> read_line(std::string_view text, int number);

/// The longest word of a line, and the longest name in full.
inline constexpr std::size_t longest_word = 200;

/// Throws Error (usage) when `text` cannot be the name of anything.
void check_name(std::string_view text);

/// The names that a line's name stands for: `stage.{1..3}` is three. Throws Error (usage).
std::vector<std::string> expanded(const std::string& name);

}  // namespace ringtrain
