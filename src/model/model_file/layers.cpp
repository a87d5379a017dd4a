#include "model/model_file/layers.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "model/model_file/parse.hpp"
#include "ringtrain/base/error.hpp"
#include "ringtrain/base/text.hpp"

namespace ringtrain::model {
namespace {

constexpr std::size_t most_layers = 10'000;

Error usage(std::string_view what, std::string_view why) {
  return Error(Exit::usage, brief(what), why);
}

template <class Map>
std::vector<std::string> keys(const Map& map) {
  std::vector<std::string> names;
  for (const auto& [name, unused] : map) names.push_back(name);
  return names;
}

// The options of `line`, with what `$name` stands for.
std::map<std::string, std::string> filled_in(const Line& line,
                                             const std::map<std::string, std::string>& values) {
  std::map<std::string, std::string> options = line.options;
  for (auto& [option, text] : options) {
    if (text[0] != '$') continue;
    const auto found = values.find(text.substr(1));
    if (found == values.end())
      throw usage(option + "=" + text,
                  "no such parameter here" + did_you_mean(text.substr(1), keys(values)));
    text = found->second;
  }
  return options;
}

void check_inputs(const OperationEntry& operation, std::size_t count) {
  if (count < operation.least_inputs)
    throw usage(operation.word, fmt::format("needs {} inputs; name them", operation.least_inputs));
  if (count > operation.most_inputs)
    throw usage(operation.word,
                fmt::format("takes {} at most, not {}", operation.most_inputs, count));
}

}  // namespace

void Layers::input(const Line& line) {
  if (!places_.empty()) throw usage("input", "there is one already; a network has one image");
  if (!line.name.empty() || !line.inputs.empty())
    throw usage("input", "is the image's name; after it are only options, such as size=32");
  const Values values("input", filled_in(line, top_.values));
  values.expect_only(input_options);
  top_.results["input"] = top_.last = add_input(builder_, values);
  places_.push_back(at_);
}

void Layers::define(const std::string& name, Block block) {
  at_.line = block.first_line;
  if (find_operation(name) != nullptr) throw usage("block " + name, "is an operation already");
  if (!blocks_.emplace(name, std::move(block)).second)
    throw usage("block " + name, "there is a block of this name already");
}

void Layers::add(const Line& line, Scope& scope) {
  at_.line = line.number;
  if (places_.empty()) throw usage(line.word, "the line `input` comes before all layers");
  const std::vector<std::string> names =
      line.name.empty() ? std::vector<std::string>{""} : expanded(line.name);
  if (names.size() > 1 && !line.inputs.empty())
    throw usage(line.name, "a range goes on from the line before; name no input");
  for (const std::string& name : names) {
    if (scope.results.contains(name)) throw usage(name, "is the name of a line above already");
    scope.last = layer(line, name, scope);
    if (!name.empty() && scope.last != compute::no_tensor) scope.results[name] = scope.last;
  }
}

compute::TensorId Layers::layer(const Line& line, const std::string& name, const Scope& scope) {
  const auto block = blocks_.find(line.word);
  if (block == blocks_.end()) return operation(line, name, scope);
  if (block->second.last_line < line.number) return use(block->second, line, name, scope);
  throw usage(line.word, "this block does not end above; a block cannot use itself");
}

compute::TensorId Layers::operation(const Line& line, const std::string& name, const Scope& scope) {
  const OperationEntry* entry = find_operation(line.word);
  if (entry == nullptr) throw usage(line.word, unknown(line.word));
  const Values values(line.word, filled_in(line, scope.values));
  values.expect_only(entry->options);
  const std::vector<compute::TensorId> inputs = inputs_of(line, scope);
  check_inputs(*entry, inputs.size());
  if (places_.size() == most_layers)
    throw usage(line.word, fmt::format("a network has at most {} layers", most_layers));
  const std::string full = entry->has_parameters ? claim(line, name, scope) : "";
  const compute::TensorId result =
      entry->add({builder_, line.word, full, inputs, values, classes_});
  places_.push_back(at_);
  if (result != compute::no_tensor) check_size(result);
  return result;
}

compute::TensorId Layers::use(Block& block, const Line& line, const std::string& name,
                              const Scope& scope) {
  const Values values(line.word, filled_in(line, scope.values));
  values.expect_only(keys(block.parameters));
  const std::vector<compute::TensorId> inputs = inputs_of(line, scope);
  if (inputs.size() != 1) throw usage(line.word, "a block takes one input");
  const std::string full = claim(line, name, scope);
  Scope inner{.prefix = full + ".", .results = {{"input", inputs[0]}}, .last = inputs[0]};
  inner.values["classes"] = std::to_string(classes_);
  for (const auto& [parameter, usual] : block.parameters) {
    const std::string text = values.text(parameter, usual);
    if (text.empty()) throw usage(line.word, fmt::format("needs {}=...", parameter));
    inner.values[parameter] = text;
  }
  block.used = true;
  const TextPlace caller = at_;
  at_.within = fmt::format("{} of line {}", full, line.number);
  const bool outermost = scope.prefix.empty();
  if (outermost) builder_.set_block(full);
  for (const Line& each : block.lines) add(each, inner);
  if (outermost) builder_.set_block("");
  at_ = caller;
  return inner.last;
}

std::vector<compute::TensorId> Layers::inputs_of(const Line& line, const Scope& scope) const {
  std::vector<compute::TensorId> inputs;
  for (const std::string& name : line.inputs) inputs.push_back(find(name, scope));
  if (!inputs.empty()) return inputs;
  if (scope.last == compute::no_tensor)
    throw usage(line.word, "the line before has no result; name the input");
  return {scope.last};
}

compute::TensorId Layers::find(const std::string& name, const Scope& scope) const {
  const auto found = scope.results.find(name);
  if (found != scope.results.end()) return found->second;
  throw usage(name, "no line above has this name" + did_you_mean(name, keys(scope.results)));
}

std::string Layers::claim(const Line& line, const std::string& name, const Scope& scope) {
  if (name.empty())
    throw usage(line.word,
                fmt::format("has parameters, so it needs a name: NAME = {} ...", line.word));
  std::string full = scope.prefix + name;
  if (full.size() > longest_word)
    throw usage(full, fmt::format("is longer than the {} characters of a name", longest_word));
  if (!claimed_.insert(full).second) throw usage(full, "is the name of another layer already");
  return full;
}

std::string Layers::unknown(const std::string& word) const {
  std::vector<std::string> words = operation_words();
  for (const std::string& block : keys(blocks_)) words.push_back(block);
  return "no such operation, nor block above" + did_you_mean(word, words);
}

void Layers::check_size(compute::TensorId result) const {
  const compute::Shape& shape = builder_.shape(result);
  if (double(shape.features()) > most_values)
    throw usage(fmt::format("a result of {}x{}x{}", shape.height, shape.width, shape.channels),
                fmt::format("has more than {:.0f} values an image", most_values));
}

Graph Layers::finish() {
  for (const auto& [name, block] : blocks_) {
    at_ = {block.first_line, ""};
    if (!block.used) throw usage("block " + name, "no line uses it");
  }
  if (places_.empty()) throw usage("no layers", "a network has an input, layers and a loss");
  Graph graph = std::move(builder_).finish();
  if (const auto fault = first_fault(graph)) {
    at_ = places_[fault->node];
    throw usage(fault->what, fault->why);
  }
  return graph;
}

}  // namespace ringtrain::model
