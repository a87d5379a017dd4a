#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <exception>
#include <nlohmann/json.hpp>
#include <span>

#include "config/option_table.hpp"
#include "ringtrain/base/error.hpp"
#include "ringtrain/base/text.hpp"
#include "ringtrain/config/options.hpp"

namespace ringtrain::config {
namespace {

using nlohmann::json;

constexpr std::array<std::string_view, 4> of_factors = {"lr-factor", "decay-factor", "head-lr",
                                                        "layer-decay"};

// allreduce and bucket-mb: they choose the order in which a sum's terms are added.
constexpr std::array<std::string_view, 29> change_the_numbers = {
    "model",          "classes",         "data",         "seed",           "epochs",
    "steps",          "batch",           "global-batch", "accumulate",     "device",
    "precision",      "optimizer",       "lr",           "lr-schedule",    "warmup-epochs",
    "weight-decay",   "label-smoothing", "ema",          "on-nan",         "allreduce",
    "bucket-mb",      "deterministic",   "fusion",       "gradient-dtype", "compress",
    "sync-batchnorm", "val-split",       "freeze",       "clip-grad"};

bool among(std::span<const std::string_view> names, const OptionEntry& entry) {
  return std::ranges::find(names, entry.name) != names.end();
}

json value_of(const OptionEntry& entry) {
  const std::string value = entry.value();
  if (value.empty()) return nullptr;
  if (entry.bare) return json::parse(value);
  return entry.name == "data" ? value.substr(0, value.find(':')) : value;
}

json parsed(std::string_view text) {
  // flat, as ours are: nothing of what is nested deeper is kept
  const auto flat = [](int depth, json::parse_event_t event, const json&) {
    const bool opens =
        event == json::parse_event_t::object_start || event == json::parse_event_t::array_start;
    return depth == 0 || !opens;
  };
  json config = json::parse(text, flat, false);
  if (!config.is_object()) throw Error("compare configurations", "one is not a JSON object");
  return config;
}

// Empty where it is unset.
std::string text_of(const json& config, const std::string& key) {
  const auto found = config.find(key);
  if (found == config.end() || found->is_null()) return "";
  return found->is_string() ? found->get<std::string>() : found->dump();
}

std::string shown(const json& config, const std::string& key) {
  const auto found = config.find(key);
  if (found == config.end() || found->is_null()) return "unset";
  return brief(text_of(config, key));
}

}  // namespace

std::string canonical_config(const Options& options, const std::string& training_data) {
  Request request{.options = options};
  json config = json::object();
  for (const OptionEntry& entry : option_table(request))
    if (among(change_the_numbers, entry) || among(of_factors, entry))
      config[entry.name] = value_of(entry);
  if (!options.recipe.empty()) config["recipe"] = options.recipe;
  if (options.balance) config["balance"] = true;
  if (!options.class_weights.empty()) config["class-weights"] = options.class_weights;
  if (!training_data.empty()) config["training-data"] = training_data;
  return config.dump(-1, ' ', true, json::error_handler_t::replace);
}

Factors factors_in(std::string_view config) try {
  const json all = parsed(config);
  Request request;
  for (const OptionEntry& entry : option_table(request))
    if (const std::string text = text_of(all, entry.name);
        among(of_factors, entry) && !text.empty())
      entry.set(text);
  return request.options.factors;
} catch (const std::exception&) {  // a checkpoint's texts may be anybody's
  return {};
}

std::string factors_text(const Factors& factors) {
  Request request;
  request.options.factors = factors;
  std::string text;
  for (const OptionEntry& entry : option_table(request))
    if (among(of_factors, entry) && !entry.value().empty())
      text += fmt::format("{}--{} {}", text.empty() ? "" : " ", entry.name, entry.value());
  return text;
}

std::vector<std::string> differences(std::string_view before, std::string_view after) {
  const json old = parsed(before), now = parsed(after);
  json keys = old;
  keys.update(now);
  std::vector<std::string> lines;
  for (const auto& [key, unused] : keys.items())
    if (shown(old, key) != shown(now, key))
      lines.push_back(fmt::format("{}: {} -> {}", brief(key), shown(old, key), shown(now, key)));
  return lines;
}

}  // namespace ringtrain::config
