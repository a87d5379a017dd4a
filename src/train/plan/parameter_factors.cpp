#include "train/plan/parameter_factors.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <string_view>

#include "ringtrain/base/error.hpp"
#include "ringtrain/base/text.hpp"
#include "ringtrain/model/layer_groups.hpp"

namespace ringtrain::train {
namespace {

// Names, and modules that hold them.
std::string nearest_pattern(const std::string& pattern, const model::Graph& graph) {
  std::set<std::string> patterns;
  for (const model::Parameter& parameter : graph.parameters) {
    const std::string& name = parameter.name;
    patterns.insert(name);
    for (std::size_t dot = name.find('.'); dot != name.npos; dot = name.find('.', dot + 1)) {
      patterns.insert(name.substr(0, dot));
      patterns.insert(name.substr(0, dot) + ".*");
    }
  }
  return did_you_mean(pattern, {patterns.begin(), patterns.end()});
}

// What stands before the first dot.
std::string beginnings(const model::Graph& graph) {
  std::vector<std::string> found;
  for (const model::Parameter& parameter : graph.parameters) {
    const std::string begin = parameter.name.substr(0, parameter.name.find('.'));
    if (std::ranges::count(found, begin) == 0) found.push_back(begin);
  }
  return fmt::format("{}", fmt::join(found, ", "));
}

Error no_match(const std::string& option, const std::string& pattern, const model::Model& model) {
  return Error(
      Exit::usage, fmt::format("{} {}", option, brief(pattern)),
      fmt::format("matches no parameter of {}: their names begin with {}{}", brief(model.name),
                  brief(beginnings(model.graph)), nearest_pattern(pattern, model.graph)));
}

// One a parameter: that of the last pattern that matches, else 1.
std::vector<double> matched(const std::string& option,
                            const std::vector<config::NameFactor>& factors,
                            const model::Model& model) {
  const std::vector<model::Parameter>& parameters = model.graph.parameters;
  std::vector<double> found(parameters.size(), 1.0);
  for (const auto& [pattern, factor] : factors) {
    bool matches = false;
    for (std::size_t p = 0; p < parameters.size(); ++p) {
      if (!model::matches(pattern, parameters[p].name)) continue;
      found[p] = factor;
      matches = true;
    }
    if (!matches) throw no_match(option, pattern, model);
  }
  return found;
}

void decay_by_layer(double decay, const model::Graph& graph, std::vector<double>& rates) {
  const std::vector<int> depths = model::layer_depths(graph);
  const int head = std::ranges::max(depths);
  for (std::size_t p = 0; p < rates.size(); ++p) rates[p] *= std::pow(decay, head - depths[p]);
}

// Whatever the patterns say.
void set_head(double head_lr, double lr, const model::Model& model, std::vector<double>& rates) {
  const std::set<model::ParameterId> head = model::head_parameters(model.graph);
  if (head.empty())
    throw Error(Exit::usage, fmt::format("--head-lr {}", head_lr),
                fmt::format("{} has no matrix_product that gives the logits; name what is its head "
                            "by --lr-factor PATTERN=X",
                            brief(model.name)));
  if (lr == 0)
    throw Error(Exit::usage, "--head-lr with --lr 0",
                "the head's rate is a multiple of --lr; give one above 0");
  for (const model::ParameterId id : head) rates[static_cast<std::size_t>(id)] = head_lr / lr;
}

// Neighbours that learn alike are one range.
std::vector<optim::RateFactor> rate_ranges(const model::Graph& graph,
                                           const std::vector<double>& factors) {
  const std::vector<Range> parameters = graph.parameter_ranges();
  std::vector<optim::RateFactor> rates;
  for (std::size_t p = 0; p < factors.size(); ++p) {
    if (graph.parameters[p].frozen || factors[p] == 1) continue;
    const bool goes_on = !rates.empty() && rates.back().factor == factors[p] &&
                         rates.back().range.end() == parameters[p].first;
    if (goes_on)
      rates.back().range.count += parameters[p].count;
    else
      rates.push_back({parameters[p], factors[p]});
  }
  return rates;
}

}  // namespace

ParameterFactors parameter_factors(const config::Options& options, const model::Model& model) {
  const config::Factors& given = options.factors;
  std::vector<double> rates = matched("--lr-factor", given.lr, model);
  if (given.layer_decay) decay_by_layer(*given.layer_decay, model.graph, rates);
  if (given.head_lr && options.lr) set_head(*given.head_lr, *options.lr, model, rates);
  std::vector<double> decays = matched("--decay-factor", given.decay, model);
  for (std::size_t p = 0; p < rates.size(); ++p)
    if (model.graph.parameters[p].held) rates[p] = decays[p] = 0;
  return {rate_ranges(model.graph, rates), std::move(decays)};
}

}  // namespace ringtrain::train
