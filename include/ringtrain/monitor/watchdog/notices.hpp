#pragma once
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace ringtrain {

/// Sentences from one thread to another.
class Notices {
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

}  // namespace ringtrain
