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

}  // namespace ringtrain::model
