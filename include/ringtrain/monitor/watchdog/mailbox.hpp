#pragma once
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "ringtrain/monitor/rank_stats.hpp"

namespace ringtrain::monitor {

/// What each rank last told of itself, by rank, from one thread to another.
class RankStatsMailbox {
 public:
  void set(std::vector<RankStats> of_ranks) {
    const std::lock_guard lock(mutex_);
    of_ranks_ = std::move(of_ranks);
  }
  /// Nothing before they were set.
  std::vector<RankStats> get() const {
    const std::lock_guard lock(mutex_);
    return of_ranks_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<RankStats> of_ranks_;
};

/// Sentences from one thread to another.
class TextMailbox {
 public:
  void add(std::string sentence) {
    const std::lock_guard lock(mutex_);
    sentences_.push_back(std::move(sentence));
  }
  std::vector<std::string> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(sentences_, {});
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> sentences_;
};

}  // namespace ringtrain::monitor
