#include "train/plan/model_source.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "ringtrain/base/error.hpp"
#include "ringtrain/base/file.hpp"
#include "ringtrain/base/hash.hpp"
#include "ringtrain/config/option_values.hpp"
#include "ringtrain/io/loader/loader.hpp"
#include "ringtrain/model/model_file.hpp"

namespace ringtrain::train {
namespace {

template <class Read>
void expect_readable(const std::string& option, const std::string& text, const Read& read) try {
  static_cast<void>(read(text));
} catch (const BadValue& bad) {
  throw Error(Exit::usage, brief(option + "=" + text), bad.what());
}

// "<file>:<line>: what: why" without its file and line.
std::string_view without_line(std::string_view fault, std::string_view file) {
  if (!fault.starts_with(file)) return fault;
  const std::size_t end = fault.find(": ", file.size());
  return end == std::string_view::npos ? fault : fault.substr(end + 2);
}

void check(const model::Recipe& recipe) {
  expect_readable("optimizer", recipe.optimizer, config::enumerator<optim::OptimizerKind>().read);
  expect_readable("lr-schedule", recipe.schedule, optim::parse_decay);
  expect_readable("auto-augment", recipe.auto_augment, io::parse_policy);
  const auto factors = config::name_factors();
  if (!recipe.lr_factor.empty()) expect_readable("lr-factor", recipe.lr_factor, factors.read);
  if (!recipe.decay_factor.empty())
    expect_readable("decay-factor", recipe.decay_factor, factors.read);
}

}  // namespace

std::optional<int> classes_in(const std::string& network) try {
  if (network.empty()) return std::nullopt;
  return model::read_model_file(network, "network", std::nullopt, [](const model::Recipe&) {})
      .classes;
} catch (const Error&) {
  return std::nullopt;
}

std::string network_description(const std::string& name, const std::string& network) {
  const auto classes = classes_in(network);
  return brief(name) + (classes ? fmt::format(" for {} classes", *classes) : "");
}

ModelSource::ModelSource(const config::Options& options, const std::optional<SavedNetwork>& saved)
    : saved_(saved), classes_(options.classes) {
  if (!options.model_file.empty())
    take_file(options.model_file);
  else if (!options.model.empty())
    take_zoo(options.model);
  else if (saved)
    take_saved();
  else
    take_zoo(config::usual_model);
  if (options.eval_only && saved) evaluated_classes_ = classes_in(saved->text);
  recipe_ = options.recipe;
  without_recipe_ = text_;
  if (!recipe_.empty()) text_ = model::with_words(text_, recipe_);
  if (!options.model.empty()) option_ = "--model " + options.model;
}

void ModelSource::take_file(const std::string& file) {
  option_ = "--model-file " + brief(file);
  place_ = brief(file);
  text_ = read_small_file(file, option_);
  of_file_ = true;
}

void ModelSource::take_zoo(const std::string& name) {
  place_ = "built in";
  text_ = model::model_text(name);
}

// Files of earlier builds, and of PyTorch's weights, hold no more than a name.
void ModelSource::take_saved() {
  const bool built_in = std::ranges::count(model::model_names(), saved_->name) > 0;
  if (saved_->text.empty() && !built_in)
    throw Error(
        Exit::usage, brief(saved_->checkpoint),
        fmt::format("holds no network, but the name {}: give --model-file", brief(saved_->name)));
  if (saved_->text.empty()) return take_zoo(saved_->name);
  place_ = brief(saved_->checkpoint);
  text_ = saved_->text;
  identity_ = brief(saved_->identity);
  of_saved_ = true;
}

// With --recipe, lines are not those that the user sees: a fault is of the text without it, else of
// --recipe.
model::Model ModelSource::read(std::optional<int> classes) const {
  const std::string file = of_saved_ ? "network of " + place_ : place_;
  try {
    return model::read_model_file(text_, file, classes, check);
  } catch (const Error& failure) {
    if (recipe_.empty()) throw;
    static_cast<void>(model::read_model_file(without_recipe_, file, classes, check));
    throw Error(failure.code(), fmt::format("--recipe \"{}\"", brief(recipe_)),
                without_line(failure.what(), file));
  }
}

model::Model ModelSource::make(std::optional<int> usual) const {
  const bool as_saved = of_saved_ && saved_->goes_on;
  const auto classes = classes_ ? classes_ : evaluated_classes_;
  model::Model model = read(classes || as_saved ? classes : usual);
  if (saved_ && saved_->named) expect_saved(model);
  return model;
}

// Where the user said nothing, nothing contradicts: that layers differ is told when they are
// loaded.
void ModelSource::expect_saved(const model::Model& model) const {
  const std::string option =
      option_.empty() && classes_ ? fmt::format("--classes {}", *classes_) : option_;
  if (option.empty() || saved_->hash == 0 || model.graph.structure_hash() == saved_->hash) return;
  throw Error(Exit::usage, option,
              fmt::format("makes {} for {} classes; {} holds {}: leave the option out, or --resume",
                          model.name, model.classes, brief(saved_->checkpoint),
                          network_description(saved_->name, saved_->text)));
}

std::string ModelSource::identity(const model::Model& model) const {
  if (of_file_) return fmt::format("{} (file {})", model.name, hex(hash_text(text_)));
  return of_saved_ ? identity_ : model.name;
}

std::string ModelSource::text(const model::Model& model) const {
  return model::with_classes(text_, model.classes);
}

}  // namespace ringtrain::train
