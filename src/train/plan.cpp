#include "train/plan.hpp"

#include <fmt/core.h>

#include <cmath>

#include "ringtrain/base/error.hpp"
#include "train/option_values.hpp"

namespace ringtrain {
namespace {

// The options left open, from the recipe.
void complete(Options& o, const Model& model) {
  const Recipe& recipe = model.recipe;
  o.classes = model.classes;
  if (!o.optimizer) o.optimizer = enumerator<OptimizerKind>().read(recipe.optimizer);
  if (!o.lr_schedule) o.lr_schedule = parse_decay(recipe.schedule);
  if (!o.warmup_epochs) o.warmup_epochs = recipe.warmup_epochs;
  if (!o.weight_decay) o.weight_decay = recipe.weight_decay;
  if (!o.label_smoothing) o.label_smoothing = recipe.label_smoothing;
  if (!o.ema) o.ema = recipe.ema;
}

InputRecipe input_of(const Model& model) {
  const Recipe& recipe = model.recipe;
  const Extent extent{model.input.height, model.input.width};
  InputRecipe input{extent};
  if (recipe.random_resized_crop) {
    input.crop = Crop::random_resized;
    input.area = {static_cast<float>(recipe.smallest_area), 1};
  } else if (recipe.random_crop || recipe.pad > 0) {
    input.crop = Crop::random;
    input.padding = recipe.pad;
  }
  if (recipe.random_crop) {  // a window of three quarters: 24 of 32
    input.cover = {extent.height * 4 / 3, extent.width * 4 / 3};
  }
  input.mirror = recipe.flip;
  input.brightness = {-recipe.brightness, recipe.brightness};
  input.contrast = {recipe.least_contrast, recipe.most_contrast};
  if (recipe.evaluation_fraction < 1)
    input.central_fraction = static_cast<float>(recipe.evaluation_fraction);
  return input;
}

OptimizerSettings optimizer_of(const Options& o, const Model& model) {
  OptimizerSettings settings;
  settings.kind = *o.optimizer;
  settings.momentum = model.recipe.momentum;
  settings.weight_decay = *o.weight_decay;
  settings.ema = *o.ema;
  if (settings.kind == OptimizerKind::rmsprop) settings.epsilon = 1;
  const auto ranges = model.graph.parameter_ranges();
  for (std::size_t p = 0; p < ranges.size(); ++p)
    if (model.graph.parameters[p].decay) settings.decays.push_back({ranges[p], 1});
  return settings;
}

// Fills batch sizes in and checks that every rank gets work.
void share_work(Plan& plan, int rank) {
  Options& o = plan.options;
  if (!o.batch && !o.global_batch) o.batch = plan.model.recipe.batch;
  plan.global_batch = o.global_batch ? *o.global_batch : *o.batch * plan.ranks * o.accumulate;
  if (plan.global_batch % o.accumulate != 0)
    throw Error(Exit::usage, fmt::format("--global-batch {}", plan.global_batch),
                fmt::format("is not a multiple of --accumulate {}", o.accumulate));
  plan.micro_batch = plan.global_batch / o.accumulate;
  if (plan.micro_batch < plan.ranks)
    throw Error(Exit::usage, fmt::format("--global-batch {}", plan.global_batch),
                fmt::format("gives {} ranks less than one image a step each; use at least {}",
                            plan.ranks, plan.ranks * o.accumulate));
  plan.share = share_of(plan.micro_batch, rank, plan.ranks);
  check_enough(*plan.training, 1, plan.global_batch);
}

void set_length(Plan& plan) {
  const Options& o = plan.options;
  const auto size = static_cast<double>(plan.training->size());
  if (o.steps) {
    plan.steps = static_cast<std::uint64_t>(*o.steps);
    plan.epochs = double(plan.steps) * plan.global_batch / size;
    return;
  }
  plan.epochs = o.epochs ? *o.epochs : plan.model.recipe.epochs;
  plan.steps = plan.step_of_epoch(plan.epochs);
}

std::unique_ptr<Dataset> open(const Options& o, const Model& model, Split split) {
  DatasetOptions options;
  options.extent = {model.input.height, model.input.width};
  options.classes = model.classes;
  return open_dataset(o.data, split, options);
}

int classes_of(const Options& o) {
  if (o.classes) return *o.classes;
  if (o.data == "synthetic") return default_classes(o.model);
  return open_dataset(o.data, Split::training)->classes();
}

void check_classes(const Plan& plan) {
  for (const Dataset* data : {plan.training.get(), plan.evaluation.get()})
    if (data->classes() > plan.model.classes)
      throw Error(Exit::data, fmt::format("--classes {}", plan.model.classes),
                  fmt::format("but {} has {} classes", data->description(), data->classes()));
}

}  // namespace

std::uint64_t Plan::step_of_epoch(double epoch) const {
  return static_cast<std::uint64_t>(std::ceil(epoch * double(training->size()) / global_batch));
}

TrainerSettings Plan::trainer() const {
  return {options.accumulate, micro_batch, share.count, training->size(), learning_rate};
}

LoaderOptions Plan::loader(Split split) const {
  LoaderOptions o;
  o.mode = split;
  o.seed = options.seed;
  o.global_batch = micro_batch;
  o.share = share;
  o.threads = options.data_threads.value_or(1);
  o.recipe = input;
  return o;
}

Plan make_plan(const Options& options, int rank, int ranks) {
  if (options.device == Device::cuda)
    throw Error(Exit::usage, "--device cuda",
                "this version trains on CPUs only; leave --device out or say cpu");
  Plan plan;
  plan.options = options;
  plan.ranks = ranks;
  plan.model = make_model(options.model, classes_of(options));
  complete(plan.options, plan.model);
  plan.training = open(options, plan.model, Split::training);
  plan.evaluation = open(options, plan.model, Split::evaluation);
  check_classes(plan);
  share_work(plan, rank);
  set_length(plan);

  const Recipe& recipe = plan.model.recipe;
  if (!plan.options.lr)
    plan.options.lr = recipe.learning_rate_batch == 0
                          ? recipe.learning_rate
                          : recipe.learning_rate * plan.global_batch / recipe.learning_rate_batch;
  plan.optimizer = optimizer_of(plan.options, plan.model);
  plan.learning_rate = {*plan.options.lr, *plan.options.lr_schedule, *plan.options.warmup_epochs,
                        plan.epochs};
  plan.input = input_of(plan.model);
  return plan;
}

}  // namespace ringtrain
