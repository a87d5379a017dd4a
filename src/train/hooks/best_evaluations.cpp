#include "train/hooks/best_evaluations.hpp"

#include <fmt/core.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "ringtrain/base/text.hpp"
#include "ringtrain/config/option_values.hpp"
#include "ringtrain/metrics/log_text.hpp"

namespace ringtrain::train {
namespace {

double value_of(config::Metric metric, const Evaluation& result) {
  switch (metric) {
    case config::Metric::top5:
      return result.top5;
    case config::Metric::loss:
      return result.loss;
    default:
      return result.top1;
  }
}

std::string metric_name(config::Metric metric) {
  return config::enumerator<config::Metric>().write(metric);
}

}  // namespace

BestEvaluations::BestEvaluations(const Parts& parts, const std::string& before) : parts_(parts) {
  read(before);
  if (is_followed() && best_) judge(std::nullopt);
}

config::Metric BestEvaluations::metric() const {
  const config::Options& o = parts_.run.options();
  if (o.keep_best) return *o.keep_best;
  return o.until ? o.until->metric : config::Metric::top1;
}

bool BestEvaluations::is_followed() const { return parts_.run.options().follows_best(); }

std::string BestEvaluations::text() const {
  if (!best_) return "";
  return nlohmann::ordered_json{{"metric", best_->metric},
                                {"value", best_->value},
                                {"step", best_->step},
                                {"evaluated", evaluated_},
                                {"evaluations_since", since_}}
      .dump();
}

// Anybody's text. What it says stays in the checkpoints also where nobody follows it.
void BestEvaluations::read(const std::string& before) {
  const auto json = nlohmann::json::parse(before, nullptr, false);
  if (!json.is_object() || !json.contains("metric") || !json["metric"].is_string()) return;
  for (const char* key : {"value", "step", "evaluated", "evaluations_since"})
    if (!json.contains(key) || !json[key].is_number()) return;
  parts_.checkpoints.set_best(before);
  if (json["metric"] != metric_name(metric())) {
    if (is_followed())
      parts_.run.note(fmt::format("the best evaluation so far is by {}: by {} it is sought anew",
                                  printable(json["metric"].get<std::string>()),
                                  metric_name(metric())));
    return;
  }
  best_ = {metric_name(metric()), json["value"].get<double>(), json["step"].get<std::int64_t>()};
  evaluated_ = json["evaluated"].get<std::int64_t>();
  since_ = json["evaluations_since"].get<int>();
  kept_ = best_;
  parts_.log.set_best(*best_);
}

bool BestEvaluations::is_best(double value) const {
  if (std::isnan(value)) return false;
  if (!best_) return true;
  return metric() == config::Metric::loss ? value < best_->value : value > best_->value;
}

// A resumed run evaluates the step again that it goes on from, where it had not been saved since.
void BestEvaluations::evaluated(const Position& position, const Evaluation& result) {
  if (!result.whole || !result.valid) return;
  if (is_followed() && rank_0_says(parts_.checkpoints.take_best_failed())) best_ = kept_ = before_;
  const double value = value_of(metric(), result);
  const auto step = static_cast<std::int64_t>(position.step);
  const bool again = std::exchange(evaluated_, step) == step;
  const bool best = is_best(value) || (best_ && best_->step == step);
  if (best) best_ = {metric_name(metric()), value, step};
  since_ = best ? 0 : since_ + (again ? 0 : 1);
  if (best_) parts_.log.set_best(*best_);
  if (!is_followed()) return;
  if (best && parts_.run.options().keep_best)
    keep(position);
  else if (!parts_.run.options().keep_best || kept_)
    parts_.checkpoints.set_best(text());
  const auto& until = parts_.run.options().until;
  judge(until ? std::optional(value_of(until->metric, result)) : std::nullopt);
}

bool BestEvaluations::rank_0_says(bool mine) const {
  return !parts_.run.session.broadcast(mine ? "yes" : "").empty();
}

void BestEvaluations::keep(const Position& position) {
  parts_.run.progress.enter(metrics::Phase::checkpoint);
  const Deadline deadline(parts_.run.options().final_save_timeout_s);
  before_ = kept_;
  const bool begun = rank_0_says(parts_.checkpoints.save_best(position, text(), deadline));
  (begun ? kept_ : best_) = begun ? best_ : before_;
}

// `now`: of this evaluation, by the metric of --until; none where a resumed run asks of the best.
void BestEvaluations::judge(std::optional<double> now) {
  const auto& [until, patience] =
      std::tie(parts_.run.options().until, parts_.run.options().patience);
  if (!now && until && until->metric == metric()) now = best_->value;
  if (until && now && until->is_met_by(*now)) {
    parts_.run.note(fmt::format("--until {} is reached: {} {:.4g}, {} after this run began",
                                config::metric_goal().write(*until), metric_name(until->metric),
                                *now, metrics::duration_words(parts_.since_start.elapsed())));
    ends_ = true;
  } else if (patience && since_ >= *patience) {
    parts_.run.note(fmt::format("--patience {}: {} evaluations{} were no better", *patience, since_,
                                best_ ? fmt::format(" since that of step {}", best_->step) : ""));
    ends_ = true;
  }
}

}  // namespace ringtrain::train
