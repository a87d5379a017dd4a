#include "train/evaluation/predictions.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

namespace ringtrain::train {
namespace {

constexpr std::string_view line_end = "\r\n";  // of CSV

std::string csv_field(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == text.npos) return std::string(text);
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + '"';
}

std::string shown(double probability) { return fmt::format("{:.6g}", probability); }

}  // namespace

std::vector<ClassProbability> best_classes(std::span<const float> logits, int most) {
  if (!std::ranges::all_of(logits, [](float v) { return std::isfinite(v); })) return {};
  std::vector<int> labels(logits.size());
  std::iota(labels.begin(), labels.end(), 0);
  const auto count = std::min<std::ptrdiff_t>(most, std::ssize(labels));
  std::partial_sort(labels.begin(), labels.begin() + count, labels.end(), [&](int a, int b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  });
  const double largest = logits.empty() ? 0 : logits[labels[0]];
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - largest);
  std::vector<ClassProbability> best;
  for (const int label : std::span(labels).first(count))
    best.push_back({label, std::exp(logits[label] - largest) / sum});
  return best;
}

PredictionFormat::PredictionFormat(std::string_view output, const std::vector<std::string>& names,
                                   int top_k, bool labelled)
    : json_(output.ends_with(".jsonl")),
      labelled_(labelled),
      names_(names),
      top_k_(std::min(top_k, static_cast<int>(names.size()))) {}

std::string PredictionFormat::header() const {
  if (json_) return "";
  std::string text = labelled_ ? "path,label" : "path";
  for (int k = 1; k <= top_k_; ++k) text += fmt::format(",class{0},probability{0}", k);
  return text + ",error" + std::string(line_end);
}

std::string PredictionFormat::line(const Prediction& prediction) const {
  return json_ ? json_line(prediction) : csv_line(prediction);
}

std::string PredictionFormat::csv_line(const Prediction& p) const {
  std::string text = csv_field(p.path);
  if (labelled_) text += "," + (p.label < 0 ? "" : csv_field(names_[p.label]));
  for (int k = 0; k < top_k_; ++k)
    text += k < std::ssize(p.best) ? fmt::format(",{},{}", csv_field(names_[p.best[k].label]),
                                                 shown(p.best[k].probability))
                                   : ",,";
  return text + "," + csv_field(p.error) + std::string(line_end);
}

std::string PredictionFormat::json_line(const Prediction& p) const {
  nlohmann::ordered_json object{{"path", p.path}};
  if (p.label >= 0) object["label"] = names_[p.label];
  if (!p.error.empty()) object["error"] = p.error;
  for (const ClassProbability& one : p.best)
    object["classes"].push_back({{"class", names_[one.label]},
                                 {"index", one.label},
                                 {"probability", std::stod(shown(one.probability))}});
  return object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace ringtrain::train
