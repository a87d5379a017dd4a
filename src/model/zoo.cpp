#include "ringtrain/model/zoo.hpp"

#include <algorithm>
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
              "no such model; `train --model list` shows all" + did_you_mean(name, model_names()));
}

Model make_model(const std::string& name, std::optional<int> classes) {
  return read_model_file(model_text(name), name + ".model", classes, [](const Recipe&) {});
}

}  // namespace ringtrain::model
