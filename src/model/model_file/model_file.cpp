#include "ringtrain/model/model_file.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "model/model_file/layers.hpp"
#include "model/model_file/recipe_lines.hpp"
#include "ringtrain/base/error.hpp"

namespace ringtrain::model {
namespace {

constexpr std::size_t most_parameters = 100;

// Reads a file line by line: what is no layer here, the layers by Layers.
class ModelFile {
 public:
  ModelFile(std::optional<int> classes, const CheckRecipe& check)
      : classes_(classes), check_(check) {}

  Model read(std::string_view text);
  const TextPlace& at() const { return at_; }

 private:
  void take(const Line& line);
  void begin(const Line& line);
  void change_recipe(const Line& line);
  void begin_block(const Line& line);
  void end_block(const Line& line);

  const std::optional<int> classes_;
  const CheckRecipe& check_;
  TextPlace at_;
  Model model_;
  std::optional<Layers> layers_;  // once classes are known
  std::optional<Block> block_;    // while its lines are read
  std::string block_name_;
  std::set<std::string> said_;  // by lines `recipe` and `images`
};

Values values_of(const Line& line, std::string_view options) {
  Values values(line.word, line.options);
  values.expect_only(options);
  return values;
}

void expect_form(const Line& line, bool right, std::string_view form) {
  if (!right || !line.name.empty())
    throw Error(Exit::usage, line.word, fmt::format("is written: {}", form));
}

Model ModelFile::read(std::string_view text) {
  int number = 0;
  for (const std::string& each : lines_of(text)) {
    at_ = {++number, ""};
    if (const auto line = read_line(each, number)) take(*line);
  }
  if (!layers_) throw Error(Exit::usage, "no model", "a file begins with: model NAME classes=10");
  if (block_) {
    at_.line = block_->first_line;
    throw Error(Exit::usage, "block " + brief(block_name_), "has no `end`");
  }
  model_.graph = layers_->finish();
  auto& input = std::get<ImageInput>(model_.graph.nodes[0].operation);
  input.jitter = model_.recipe.jitters_colors();
  input.erase = model_.recipe.erases();
  model_.input = model_.graph.tensors[0];
  if (model_.recipe.auto_augment != "none" && model_.input.channels > 3)
    throw Error(Exit::usage, "auto-augment=" + brief(model_.recipe.auto_augment),
                "is for images of 1 or 3 channels: it would leave opacity where it was");
  return std::move(model_);
}

void ModelFile::take(const Line& line) {
  if (!layers_) return begin(line);
  if (line.word == "end") return end_block(line);
  if (line.word == "model") throw Error(Exit::usage, "model", "there is such a line above");
  if (line.word == "block") return begin_block(line);
  const bool about_training = line.word == "recipe" || line.word == "images";
  if (block_ && (about_training || line.word == "input"))
    throw Error(Exit::usage, line.word, "stands before blocks, not in one");
  if (block_)
    block_->lines.push_back(line);
  else if (about_training)
    change_recipe(line);
  else if (line.word == "input")
    layers_->input(line);
  else
    layers_->add(line);
}

void ModelFile::begin(const Line& line) {
  if (line.word != "model")
    throw Error(Exit::usage, brief(line.word), "a file begins with: model NAME classes=10");
  expect_form(line, line.inputs.size() == 1, "model NAME classes=10");
  model_.name = line.inputs[0];
  check_name(model_.name);
  model_.classes = values_of(line, "classes").whole("classes", 1, most_channels);
  if (classes_) model_.classes = *classes_;
  layers_.emplace(model_.classes, at_);
}

void ModelFile::change_recipe(const Line& line) {
  const bool images = line.word == "images";
  expect_form(line, line.inputs.empty(), line.word + " OPTION=VALUE ...");
  const Values values = values_of(line, images ? image_options : recipe_options);
  for (const auto& [option, text] : line.options)
    if (!said_.insert(option).second)
      throw Error(Exit::usage, brief(option + "=" + text), "a line above says it already");
  images ? read_images(values, model_.recipe) : read_recipe(values, model_.recipe);
  check_(model_.recipe);
}

void ModelFile::begin_block(const Line& line) {
  if (block_) throw Error(Exit::usage, "block", "the block above has no `end` yet");
  expect_form(line, !line.inputs.empty(), "block NAME PARAMETER ... PARAMETER=DEFAULT ...");
  block_.emplace().first_line = line.number;
  block_name_ = line.inputs[0];
  block_->parameters = line.options;
  for (auto each = line.inputs.begin() + 1; each != line.inputs.end(); ++each)
    if (!block_->parameters.emplace(*each, "").second)
      throw Error(Exit::usage, brief(*each), "is a parameter twice");
  if (block_->parameters.size() > most_parameters)
    throw Error(Exit::usage, "block", fmt::format("has at most {} parameters", most_parameters));
  check_name(block_name_);
  for (const auto& [parameter, usual] : block_->parameters) check_name(parameter);
}

void ModelFile::end_block(const Line& line) {
  if (!block_) throw Error(Exit::usage, "end", "there is no block to end");
  expect_form(line, line.inputs.empty() && line.options.empty(), "end");
  if (block_->lines.empty()) throw Error(Exit::usage, "block " + block_name_, "has no layers");
  block_->last_line = line.number;
  layers_->define(block_name_, std::move(*block_));
  block_.reset();
}

}  // namespace

Model read_model_file(std::string_view text, const std::string& file, std::optional<int> classes,
                      const CheckRecipe& check) {
  ModelFile reader(classes, check);
  try {
    return reader.read(text);
  } catch (const Error& failure) {
    if (failure.code() != Exit::usage) throw;
    const auto& [line, within] = reader.at();
    throw Error(Exit::usage, fmt::format("{}:{}", file, line),
                failure.what() + (within.empty() ? "" : fmt::format(" (in {})", within)));
  }
}

std::string with_classes(std::string_view text, int classes) {
  constexpr std::string_view option = "classes=";
  const auto is_first = [](const std::string& line) { return read_line(line, 0).has_value(); };
  std::vector<std::string> lines = lines_of(text);
  std::string& line = *std::ranges::find_if(lines, is_first);
  const std::size_t number = line.find(option) + option.size();
  const std::size_t end = line.find_first_not_of("0123456789", number);
  line.replace(number, end == line.npos ? end : end - number, std::to_string(classes));
  return fmt::format("{}", fmt::join(lines, "\n"));
}

std::string recipe_lines(std::string_view text) {
  std::string told;
  bool in_head = true;
  for (const std::string& each : lines_of(text)) {
    const auto line = read_line(each, 0);
    const bool comment = !line && each.find('#') != each.npos;
    if (line ? line->word == "recipe" || line->word == "images" : in_head && comment)
      told += each + '\n';
    if (line) in_head = false;
  }
  return told;
}

}  // namespace ringtrain::model
