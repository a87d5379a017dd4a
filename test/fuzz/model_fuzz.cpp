// Any bytes as a model file: read, and then a graph that is whole and lowers to steps, or refused
// with Error (usage).
#include "ringtrain/base/error.hpp"
#include "ringtrain/model/model_file.hpp"

using namespace ringtrain;

namespace {

void expect(bool kept) {
  if (!kept) __builtin_trap();
}

/// Each tensor is made before it is used, each parameter has a size.
void check(const model::Model& model) {
  expect(model.classes > 0 && !model.graph.nodes.empty());
  for (const model::Parameter& parameter : model.graph.parameters)
    expect(!parameter.name.empty() && !parameter.dims.empty());
  model.graph.structure_hash();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(bytes), size);
  // the number of classes from the file, or from the data
  const std::optional<int> classes =
      size % 2 == 0 ? std::nullopt : std::optional<int>(static_cast<int>(size % 100) + 2);
  try {
    const auto any = [](const model::Recipe&) {};
    const model::Model model = model::read_model_file(text, "net.model", classes, any);
    check(model);
    const std::string fixed = model::with_classes(text, model.classes);
    expect(model::read_model_file(fixed, "net.model", std::nullopt, any).classes == model.classes);
    const std::string canonical = model::canonical(text);
    expect(model::canonical(canonical) == canonical);
    expect(model::read_model_file(canonical, "net.model", classes, any).graph.structure_hash() ==
           model.graph.structure_hash());
    expect(model::recipe_lines(text).size() <= text.size() + 1);
  } catch (const Error& refused) {
    expect(refused.code() == Exit::usage);
  }
  return 0;
}
