#include "train/evaluation/class_account.hpp"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <tuple>

#include "ringtrain/base/error.hpp"
#include "ringtrain/io/image/thumbnail.hpp"

namespace ringtrain::train {

void ClassAccount::add(const Batch& batch, std::span<const float> logits) {
  const std::size_t classes = logits.size() / batch.samples.size();
  for (std::size_t i = 0; i < batch.samples.size(); ++i) {
    const Sample& sample = batch.samples[i];
    const auto own = logits.subspan(i * classes, classes);
    const bool counts = std::ranges::none_of(own, [](float v) { return std::isnan(v); });
    const auto best = std::ranges::max_element(own);  // of equal ones the first
    if (sample.target.label < 0 || !counts || !std::isfinite(*best)) continue;
    double sum = 0;
    for (const float logit : own) sum += std::exp(double(logit) - double(*best));
    add({.loss = std::log(sum) + double(*best) - double(own[sample.target.label]),
         .sample = sample.index,
         .label = sample.target.label,
         .predicted = static_cast<int>(best - own.begin()),
         .probability = 1 / sum});
  }
  keep_worst();
}

void ClassAccount::add(const Guess& guess) {
  ++confusions_[{guess.label, guess.predicted}];
  // as scikit-learn and torchmetrics bin: (0, 1/15], ...
  const int bin =
      std::clamp(static_cast<int>(std::ceil(guess.probability * bins)) - 1, 0, bins - 1);
  bins_[bin].examples += 1;
  bins_[bin].confidence += guess.probability;
  bins_[bin].right += guess.predicted == guess.label;
  worst_.push_back(guess);
}

// The same for any number of ranks: of equal losses the first image.
void ClassAccount::keep_worst() {
  const auto order = [](const Guess& g) { return std::tuple(-g.loss, g.sample); };
  std::ranges::sort(worst_, {}, order);
  if (worst_.size() > worst) worst_.resize(worst);
}

std::string ClassAccount::text() const {
  nlohmann::json all = {{"confusions", nlohmann::json::array()},
                        {"bins", nlohmann::json::array()},
                        {"worst", nlohmann::json::array()}};
  for (const auto& [pair, count] : confusions_)
    all["confusions"].push_back({pair.first, pair.second, count});
  for (const Bin& bin : bins_) all["bins"].push_back({bin.examples, bin.confidence, bin.right});
  for (const Guess& g : worst_)
    all["worst"].push_back({g.loss, g.sample, g.label, g.predicted, g.probability});
  return all.dump();
}

void ClassAccount::take(const std::string& text) {
  const auto all = nlohmann::json::parse(text);
  for (const auto& c : all["confusions"]) confusions_[{c[0], c[1]}] += c[2].get<std::int64_t>();
  for (int b = 0; b < bins; ++b) {
    const auto& bin = all["bins"][b];
    bins_[b].examples += bin[0].get<double>();
    bins_[b].confidence += bin[1].get<double>();
    bins_[b].right += bin[2].get<double>();
  }
  for (const auto& g : all["worst"])
    worst_.push_back({g[0].is_null() ? INFINITY : g[0].get<double>(), g[1], g[2], g[3], g[4]});
  keep_worst();
}

metrics::ClassRecord ClassAccount::record(std::int64_t step, const io::Dataset& data,
                                          bool with_images) const {
  constexpr int side = 112;
  const std::vector<std::string>& names = data.class_names();
  metrics::ClassRecord record{.step = step};
  const auto class_of = [&](int label) -> metrics::ClassRecord::Class& {
    while (std::ssize(record.classes) <= label) {  // a network may have more classes than the data
      const std::size_t next = record.classes.size();
      record.classes.push_back({next < names.size() ? names[next] : std::to_string(next)});
    }
    return record.classes[label];
  };
  if (!names.empty()) class_of(static_cast<int>(names.size()) - 1);
  for (const auto& [pair, count] : confusions_) {
    class_of(pair.first).examples += count;
    class_of(pair.second).predicted += count;
    if (pair.first == pair.second) class_of(pair.first).right += count;
    record.confusions.push_back({pair.first, pair.second, count});
  }
  for (const Bin& bin : bins_) {
    const double examples = std::max(bin.examples, 1.0);
    record.confidences.push_back(
        {static_cast<std::int64_t>(bin.examples), bin.confidence / examples, bin.right / examples});
  }
  for (const Guess& g : worst_) {
    record.worst.push_back({.name = data.name(g.sample),
                            .label = class_of(g.label).name,
                            .predicted = class_of(g.predicted).name,
                            .probability = g.probability,
                            .loss = g.loss});
    if (with_images) try {
        record.worst.back().png = io::png_thumbnail(data.read(g.sample).view(), side);
      } catch (const Error&) {  // it could be read before; the page does without
      }
  }
  return record;
}

std::optional<metrics::ClassRecord> class_record(const ClassAccount& account, std::int64_t step,
                                                 const io::Dataset& data,
                                                 const allreduce::MpiSession& session,
                                                 bool with_images) {
  const std::vector<std::string> of_ranks = session.gather(account.text());
  if (of_ranks.empty()) return std::nullopt;
  ClassAccount all;
  for (const std::string& rank : of_ranks) all.take(rank);
  return all.record(step, data, with_images);
}

}  // namespace ringtrain::train
