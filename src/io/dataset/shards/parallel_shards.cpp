#include "io/dataset/shards/parallel_shards.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

namespace ringtrain::io {
namespace {

class Shards {
 public:
  Shards(std::size_t count, const std::function<void(std::size_t)>& work)
      : count_(count), work_(work) {}

  void work() {
    for (std::size_t shard = claim(); shard < count_; shard = claim()) {
      std::exception_ptr failure;
      try {
        work_(shard);
      } catch (...) {
        failure = std::current_exception();
      }
      finish(shard, failure);
    }
  }

  void wait(const std::function<void(std::size_t)>& progress,
            const std::function<void(std::size_t)>& oldest) {
    using namespace std::chrono_literals;
    auto next = std::chrono::steady_clock::now() + 5s;
    std::size_t told = count_;
    std::unique_lock lock(mutex_);
    const auto is_over = [&] { return ended_ == claimed_ && (claimed_ == count_ || failed()); };
    const auto is_news = [&] {
      return is_over() || (oldest && !under_way_.empty() && *under_way_.begin() != told);
    };
    while (!is_over()) {
      if (!changed_.wait_until(lock, next, is_news)) {
        progress(ended_);
        next += 5s;
      } else if (!is_over()) {
        told = *under_way_.begin();
        oldest(told);
      }
    }
  }

  void rethrow_first() const {
    if (failed()) std::rethrow_exception(failures_.begin()->second);
  }

 private:
  bool failed() const { return !failures_.empty(); }

  std::size_t claim() {
    const std::scoped_lock lock(mutex_);
    if (failed() || claimed_ == count_) return count_;
    under_way_.insert(claimed_);
    changed_.notify_one();
    return claimed_++;
  }

  void finish(std::size_t shard, std::exception_ptr failure) {
    const std::scoped_lock lock(mutex_);
    if (failure) failures_[shard] = std::move(failure);
    ++ended_;
    under_way_.erase(shard);
    changed_.notify_one();
  }

  const std::size_t count_;
  const std::function<void(std::size_t)>& work_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t claimed_ = 0, ended_ = 0;
  std::set<std::size_t> under_way_;
  std::map<std::size_t, std::exception_ptr> failures_;
};

}  // namespace

void each_shard(std::size_t count, int threads, const std::function<void(std::size_t)>& work,
                const std::function<void(std::size_t)>& progress,
                const std::function<void(std::size_t)>& oldest) {
  Shards shards(count, work);
  {
    std::vector<std::jthread> workers;
    for (std::size_t t = 0; t < std::min(count, static_cast<std::size_t>(threads)); ++t)
      workers.emplace_back([&] { shards.work(); });
    shards.wait(progress, oldest);
  }
  shards.rethrow_first();
}

}  // namespace ringtrain::io
