#include "train/plan/optimizer_settings.hpp"

#include <utility>

#include "ringtrain/base/error.hpp"
#include "ringtrain/base/text.hpp"
#include "train/plan/parameter_factors.hpp"

namespace ringtrain::train {
namespace {

using Role = model::Parameter::Role;

compute::AverageTiming average_timing(const model::Recipe& recipe, double updates, double epochs) {
  using Warmup = compute::AverageTiming::Warmup;
  compute::AverageTiming timing{.every = recipe.ema_every, .lookahead = recipe.lookahead};
  const std::vector<std::string> parts = split(recipe.ema_warmup, ':');
  const double number = parts.size() > 1 ? number_in<double>(parts[1]).value_or(0) : 0;
  if (parts[0] == "timm") timing.warmup = Warmup::timm;
  if (parts[0] == "none") timing.warmup = Warmup::none;
  if (parts[0] == "power") {
    timing.warmup = Warmup::power;
    timing.power = number;
    timing.length = updates;
  }
  if (parts[0] == "epochs") {
    timing.warmup = Warmup::copies;
    timing.length = number * updates / epochs;
  }
  return timing;
}

// Of the paper (Chen et al. 2023, arXiv:2302.06675), and of Adam's.
double beta2_of(optim::OptimizerKind kind) {
  return kind == optim::OptimizerKind::lion ? 0.99 : 0.999;
}

// Times the weight decay.
double decay_of(const model::Recipe& recipe, const model::Parameter& parameter) {
  if (parameter.role == Role::weight) return parameter.decay;
  return parameter.role == Role::bias ? recipe.bias_decay : recipe.norm_decay;
}

}  // namespace

optim::OptimizerSettings optimizer_settings(const config::Options& o, const model::Model& model,
                                            double updates, double epochs) {
  const model::Recipe& recipe = model.recipe;
  optim::OptimizerSettings settings{.kind = *o.optimizer,
                                    .momentum = recipe.momentum,
                                    .beta1 = recipe.beta1,
                                    .beta2 = recipe.beta2.value_or(beta2_of(*o.optimizer)),
                                    .weight_decay = *o.weight_decay,
                                    .ema = *o.ema,
                                    .average = average_timing(recipe, updates, epochs),
                                    .clip_norm = o.clip_grad.value_or(0)};
  if (settings.kind == optim::OptimizerKind::rmsprop) settings.epsilon = 1;
  if (recipe.epsilon > 0) settings.epsilon = recipe.epsilon;
  if (recipe.lookahead && settings.ema == 0 && !o.eval_only)
    throw Error(Exit::usage, "lookahead=yes", "needs an average to look ahead of: add --ema X");
  const auto ranges = model.graph.parameter_ranges();
  ParameterFactors factors = parameter_factors(o, model);
  settings.rates = std::move(factors.rates);
  for (std::size_t p = 0; p < ranges.size(); ++p) {
    const model::Parameter& parameter = model.graph.parameters[p];
    if (parameter.frozen) continue;
    const bool weight = parameter.role == Role::weight;
    const double factor = factors.decays[p] * decay_of(recipe, parameter);
    if (settings.kind == optim::OptimizerKind::lars ? weight : factor > 0)
      settings.decays.push_back({ranges[p], factor});
  }
  return settings;
}

}  // namespace ringtrain::train
