#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <variant>
#include <vector>

#include "ringtrain/base/text.hpp"
#include "ringtrain/model/graph.hpp"
#include "train/plan/run_plan.hpp"

namespace ringtrain::train {
namespace {

std::string large_batch_hint(const RunPlan& plan) {
  constexpr int large = 8192;  // beyond, momentum loses accuracy on ImageNet
  if (plan.global_batch <= large || plan.optimizer.kind == optim::OptimizerKind::lars) return "";
  return fmt::format(
      "hint: {} images a step; above {}, --optimizer lars with a rate of its own (--lr) trains "
      "large networks better",
      plan.global_batch, large);
}

// Its output is beta then, whatever the image.
std::string single_value_hint(const RunPlan& plan) {
  const bool together = plan.batch_norms_together();
  const int images = together ? plan.micro_batch : std::ranges::min(plan.shares);
  if (images > 1) return "";
  for (const model::Node& node : plan.model.graph.nodes) {
    const auto* norm = std::get_if<model::BatchNorm>(&node.operation);
    if (norm == nullptr || plan.model.graph.statistics[norm->statistics].frozen) continue;
    const compute::Shape& shape = plan.model.graph.tensors[node.inputs.front()];
    if (shape.height * shape.width == 1)
      return fmt::format(
          "hint: {} normalises one value a channel on a rank with one image, which leaves "
          "nothing of it; give a larger batch{}",
          node.name, plan.ranks > 1 && !together ? ", or --sync-batchnorm" : "");
  }
  return "";
}

std::string warmup_hint(const RunPlan& plan) {
  const double run = plan.options.steps ? double(*plan.options.steps) * plan.global_batch /
                                              double(plan.training->size())
                                        : plan.epochs;
  const double warmup = *plan.options.warmup_epochs;
  if (warmup <= run / 2) return "";
  return fmt::format(
      "hint: the rate still grows for more than half of this run: --warmup-epochs {:.3g} of {:.3g} "
      "epochs",
      warmup, run);
}

std::string frozen_line(const RunPlan& plan) {
  if (plan.options.freeze.empty()) return "";
  const model::Graph& graph = plan.model.graph;
  std::size_t tensors = 0, held = 0, still = 0;
  for (const model::Parameter& p : graph.parameters) {
    tensors += p.frozen || p.held;
    held += p.held;
    still += p.frozen || p.held ? p.count() : 0;
  }
  return fmt::format(
      "freeze: {} of {} tensors{}; {} of {} parameters learn: {:.3g} MB a step to sum", tensors,
      graph.parameters.size(),
      held > 0 ? fmt::format(" ({} with gradients, as their layers learn in part)", held) : "",
      grouped(graph.parameter_count() - still), grouped(graph.parameter_count()),
      plan.sum_bytes() * 1e-6);
}

// With random weights below, not much can be learned.
std::string frozen_hint(const RunPlan& plan) {
  const config::Options& o = plan.options;
  const bool of_recipe = o.freeze == plan.model.recipe.freeze;
  if (o.freeze.empty() || of_recipe || !o.init_from.empty() || plan.goes_on) return "";
  return "hint: --freeze without --init-from: what is frozen stays as it was drawn at random";
}

}  // namespace

std::string RunPlan::rates_line() const {
  std::vector<double> factors;
  std::size_t count = 0;
  for (const optim::RateFactor& rate : optimizer.rates) {
    if (rate.factor == 0) continue;  // held, or as good as frozen
    count += rate.range.count;
    factors.push_back(rate.factor);
  }
  if (factors.empty()) return "";
  const auto [least, most] = std::ranges::minmax(factors);
  return fmt::format("rates: {} of {} parameters learn at {:.3g}{} times the rate", grouped(count),
                     grouped(model.graph.parameter_count()), least,
                     least < most ? fmt::format(" to {:.3g}", most) : "");
}

std::vector<std::string> RunPlan::hints() const {
  if (options.eval_only) return {};
  std::vector<std::string> all = {
      frozen_line(*this),      frozen_hint(*this),       rates_line(),
      large_batch_hint(*this), single_value_hint(*this), warmup_hint(*this)};
  std::erase(all, "");
  return all;
}

}  // namespace ringtrain::train
