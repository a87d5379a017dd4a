#include "ringtrain/model/zoo.hpp"

#include <algorithm>
#include <cctype>
#include <variant>

#include "ringtrain/base/error.hpp"
#include "ringtrain/base/text.hpp"
#include "ringtrain/model/model_file.hpp"

namespace ringtrain::model {
namespace {

struct ZooFile {
  std::string_view name, text;
};
// The files of models/, as CMakeLists.txt lists them.
constexpr ZooFile files[] = {
#include "zoo_files.inc"
};

// Without what people write in different ways.
std::string plain(std::string_view name) {
  std::string letters;
  for (const char c : name)
    if (c != '-' && c != '_' && c != ' ')
      letters += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return letters;
}

// timm/resnet50.a1_in1k is a network and its weights.
std::string hint(std::string_view name) {
  const std::vector<std::string> names = model_names();
  std::string_view network = name.substr(name.rfind('/') + 1);
  network = network.substr(0, network.find('.'));
  const auto same = [&](const std::string& other) { return plain(other) == plain(network); };
  const auto found = std::ranges::find_if(names, same);
  if (found == names.end()) return did_you_mean(name, names);
  const bool weights = name.find('.') != name.npos;
  return "; did you mean " + *found + (weights ? ", with its weights by --init-from FILE?" : "?");
}

}  // namespace

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const ZooFile& file : files) names.emplace_back(file.name);
  return names;
}

std::string_view model_text(const std::string& name) {
  const auto* found = std::ranges::find(files, name, &ZooFile::name);
  if (found != std::end(files)) return found->text;
  throw Error(Exit::usage, "--model " + name,
              "no such model; `train --model list` shows all" + hint(name));
}

Model make_model(const std::string& name, std::optional<int> classes) {
  return read_model_file(model_text(name), name + ".model", classes, [](const Recipe&) {});
}

}  // namespace ringtrain::model
