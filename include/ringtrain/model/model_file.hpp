#pragma once
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "ringtrain/model/zoo.hpp"

namespace ringtrain::model {

/// Throws Error (usage) where a recipe names what the trainer does not have.
using CheckRecipe = std::function<void(const Recipe&)>;

/// Reads a network and its recipe from `text`, as docs/reference/model-file.md describes. `file` is
/// its name in messages; `classes` takes the place of the number in the file. `check` sees the
/// recipe after each line that changes it. Throws Error (usage) "<file>:<line>: what: why".
/// Allocates little more than the text and what says it: no parameters.
Model read_model_file(std::string_view text, const std::string& file, std::optional<int> classes,
                      const CheckRecipe& check);

/// The text, which read_model_file() takes, with another number in its line `model`.
std::string with_classes(std::string_view text, int classes);

/// The text with `words`, "OPTION=VALUE ...", in place of what its lines `recipe`, `images` and
/// `input` say of these options. `crop=176` changes the size alone. Values are read_model_file()'s
/// to judge. Throws Error (usage) for an option that none of these lines has.
std::string with_words(std::string_view text, std::string_view words);

/// The text as checkpoints hold it: one space between words, no blank lines, no comments but those
/// above the line `model`. Says the same.
std::string canonical(std::string_view text);

/// What the text says of training: the comments above its line `model`, and the lines `recipe` and
/// `images`, each line ended.
std::string recipe_lines(std::string_view text);

}  // namespace ringtrain::model
