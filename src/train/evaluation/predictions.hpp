#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ringtrain::train {

/// A class that a network gives an image, and its softmax.
struct ClassProbability {
  int label = 0;
  double probability = 0;
};

/// The `most` likeliest classes of `logits`, likeliest first; of equal ones the lower label is
/// first. None where a logit is not finite.
std::vector<ClassProbability> best_classes(std::span<const float> logits, int most);

/// What is told of one image.
struct Prediction {
  std::string path;
  int label = -1;  ///< -1: not known
  std::vector<ClassProbability> best{};
  std::string error{};  ///< why there are none; empty: there are
};

/// Predictions as lines of a file: CSV (RFC 4180) or JSON objects.
class PredictionFormat {
 public:
  /// `output` ends in .jsonl, or is CSV. `names`: of the network's classes by label, which outlive
  /// it. `top_k`: how many a line tells at most. `labelled`: whether any image has a label.
  PredictionFormat(std::string_view output, const std::vector<std::string>& names, int top_k,
                   bool labelled);

  int top_k() const { return top_k_; }
  /// What stands above all lines.
  std::string header() const;
  std::string line(const Prediction& prediction) const;

 private:
  std::string csv_line(const Prediction& prediction) const;
  std::string json_line(const Prediction& prediction) const;

  const bool json_, labelled_;
  const std::vector<std::string>& names_;
  const int top_k_;
};

}  // namespace ringtrain::train
