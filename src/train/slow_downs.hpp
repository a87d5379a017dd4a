#pragma once
#include <functional>
#include <string>
#include <vector>

#include "train/account.hpp"
#include "train/pace.hpp"

namespace ringtrain {

/// What all ranks told of themselves: when the usual time began that a slow one is compared with,
/// when it ended, and now.
struct ThreeMoments {
  std::vector<Account> usual, start, now;  ///< by rank, equally many
};

/// What grew in a step, on which ranks, and what moved with it there: "forward grew from 8.2 to
/// 21.0 ms a step on rank 1 (b): the process stood still 0 -> 48 % of the time". Where no rank's
/// own work grew, those that wait for one another are named by what moved on their hosts.
std::string what_grew(const ThreeMoments& moments, const std::vector<std::string>& hosts);

/// Tells when training has become slow, why, and when it has recovered. On rank 0's main thread.
class SlowDowns {
 public:
  /// The ranks' accounts as they are known now, by rank; maybe none.
  using Ask = std::function<std::vector<Account>()>;

  SlowDowns(std::vector<std::string> hosts, Ask ask)
      : hosts_(std::move(hosts)), ask_(std::move(ask)) {}

  /// What the user should know: `what` is a word.
  struct News {
    std::string what, text;
  };
  /// A step with so many examples, of all ranks, is over. `saving`: a save is in flight. Mostly
  /// empty.
  News step(double seconds, double examples, bool saving);

 private:
  void remember_usual();
  News slow(double examples, bool saving);

  const std::vector<std::string> hosts_;
  const Ask ask_;
  Pace pace_;
  ThreeMoments moments_;
  std::vector<Account> next_usual_;
  int usual_news_ = 0;
};

}  // namespace ringtrain
