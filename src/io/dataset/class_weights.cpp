#include "ringtrain/io/dataset/class_weights.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <set>

#include "io/dataset/class_names.hpp"
#include "io/files/csv.hpp"
#include "ringtrain/base/file.hpp"
#include "ringtrain/base/text.hpp"

namespace ringtrain::io {
namespace {

[[noreturn]] void fail_weights(const std::string& file, std::string_view reason) {
  throw Error(Exit::usage, "--class-weights " + brief(file), reason);
}

using WeightRow = std::vector<std::string>;

std::vector<WeightRow> rows_in(const std::string& file) {
  std::vector<WeightRow> rows;
  try {
    rows = csv_rows(read_small_file(file, "--class-weights " + brief(file)));
  } catch (const BadValue& fault) {
    fail_weights(file, fault.what());
  }
  for (std::size_t r = 0; r < rows.size(); ++r)
    if (rows[r].size() != 2)
      fail_weights(file, fmt::format("row {} is no class,weight: {}", r + 1,
                                     brief(fmt::format("{}", fmt::join(rows[r], ",")))));
  return rows;
}

bool is_head(const WeightRow& row) {
  std::string first = row[0];
  std::ranges::transform(first, first.begin(), [](unsigned char c) { return std::tolower(c); });
  const std::set<std::string> heads{"class", "class_name", "name", "label"};
  return heads.contains(first) && !number_in<double>(row[1]);
}

double weight_in(const WeightRow& row, const std::string& file) try {
  constexpr double most = 1e6;
  return number_between(row[1], 0, most);
} catch (const BadValue& fault) {
  fail_weights(file, fmt::format("weight {} of {} {}", brief(row[1]), brief(row[0]), fault.what()));
}

// By name, else by number.
int class_in(const std::string& name, const LabelsByName& labels, int classes,
             const std::string& file) {
  const auto [label, why_not] = labels.find(name);
  const auto number = number_in<int>(name);
  if (label < 0 && number && *number >= 0 && *number < classes) return *number;
  if (label < 0) fail_weights(file, fmt::format("{} {}", brief(name), why_not));
  return label;
}

void expect_all(const std::vector<std::optional<float>>& weights,
                const std::vector<std::string>& names, const std::string& file) {
  std::vector<std::string> lacking;
  for (std::size_t label = 0; label < names.size(); ++label)
    if (!weights[label]) lacking.push_back(names[label]);
  if (!lacking.empty())
    fail_weights(file,
                 fmt::format("has no row of {} of the {} classes: {}", lacking.size(), names.size(),
                             brief(fmt::format("{}", fmt::join(lacking, ", ")))));
  if (std::ranges::all_of(weights, [](const auto& weight) { return weight == 0.f; }))
    fail_weights(file, "says 0 of all classes, so that nothing is learned");
}

}  // namespace

std::vector<std::uint64_t> class_counts(const Dataset& dataset) {
  std::vector<std::uint64_t> counts(dataset.class_names().size());
  for (std::uint64_t sample = 0; sample < dataset.size(); ++sample)
    ++counts.at(dataset.label(sample));
  return counts;
}

std::vector<float> balanced_weights(const std::vector<std::uint64_t>& counts, int classes) {
  double samples = 0, used = 0;
  for (const std::uint64_t count : counts) {
    samples += double(count);
    used += count > 0;
  }
  std::vector<float> weights(classes, 1.f);
  for (std::size_t label = 0; label < counts.size(); ++label)
    if (counts[label] > 0)
      weights.at(label) = static_cast<float>(samples / (used * double(counts[label])));
  return weights;
}

std::vector<float> read_class_weights(const std::string& file,
                                      const std::vector<std::string>& names, int classes) {
  std::vector<WeightRow> rows = rows_in(file);
  if (!rows.empty() && is_head(rows[0])) rows.erase(rows.begin());
  const LabelsByName labels(names, "is no class of the training");
  std::vector<std::optional<float>> weights(classes);
  for (const WeightRow& row : rows) {
    std::optional<float>& weight = weights[class_in(row[0], labels, classes, file)];
    if (weight) fail_weights(file, fmt::format("has two rows of class {}", brief(row[0])));
    weight = static_cast<float>(weight_in(row, file));
  }
  expect_all(weights, names, file);
  std::vector<float> all;
  for (const auto& weight : weights) all.push_back(weight.value_or(1));
  return all;
}

}  // namespace ringtrain::io
