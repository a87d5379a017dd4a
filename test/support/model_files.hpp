#pragma once
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>

#include "ringtrain/model/model_file.hpp"

namespace ringtrain {

inline std::string text_of(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot read " + path);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The text of one of the model files that come with the program.
inline std::string model_file(const std::string& name) {
  return text_of(RINGTRAIN_MODELS "/" + name + ".model");
}

/// Reads `text` as the file "net.model"; any recipe will do.
inline model::Model read_model(const std::string& text, std::optional<int> classes = std::nullopt) {
  return model::read_model_file(text, "net.model", classes, [](const model::Recipe&) {});
}

}  // namespace ringtrain
