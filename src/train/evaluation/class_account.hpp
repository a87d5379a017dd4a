#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ringtrain/allreduce/mpi/session.hpp"
#include "ringtrain/base/batch.hpp"
#include "ringtrain/io/dataset/dataset.hpp"
#include "ringtrain/metrics/records.hpp"

namespace ringtrain::train {

/// Counts what an evaluation finds, class by class, on one rank.
class ClassAccount {
 public:
  static constexpr int bins = 15;           ///< of confidences
  static constexpr std::size_t worst = 16;  ///< images that are shown

  /// The evaluation of a batch with those logits, samples x classes.
  void add(const Batch& batch, std::span<const float> logits);
  /// As text, for another rank's take().
  std::string text() const;
  void take(const std::string& text);
  /// What all that was counted comes to. With images: thumbnails of the worst ones of `data`, which
  /// are read once more.
  metrics::ClassRecord record(std::int64_t step, const io::Dataset& data, bool with_images) const;

 private:
  struct Bin {
    double examples = 0, confidence = 0, right = 0;
  };
  struct Guess {
    double loss = 0;
    std::uint64_t sample = 0;
    int label = 0, predicted = 0;
    double probability = 0;
  };
  void add(const Guess& guess);
  void keep_worst();

  std::map<std::pair<int, int>, std::int64_t> confusions_;
  std::array<Bin, bins> bins_{};
  std::vector<Guess> worst_;
};

/// What all ranks have counted, on rank 0. Collective.
std::optional<metrics::ClassRecord> class_record(const ClassAccount& account, std::int64_t step,
                                                 const io::Dataset& data,
                                                 const allreduce::MpiSession& session,
                                                 bool with_images);

}  // namespace ringtrain::train
