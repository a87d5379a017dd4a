#include "train/slow_downs.hpp"

#include <fmt/core.h>

#include <utility>

namespace ringtrain {
namespace {

constexpr int settling = 3;  // news in which what ranks tell is still of their first steps
constexpr int a_while = 30;  // news, after which the time to compare with begins later

}  // namespace

SlowDowns::News SlowDowns::step(double seconds, double examples, bool saving) {
  switch (pace_.step(seconds, saving)) {
    case Pace::News::none:
      return {};
    case Pace::News::usual:
      remember_usual();
      return {};
    case Pace::News::slow:
      return slow(examples, saving);
    case Pace::News::recovered:
      usual_news_ = 0;  // what ranks tell next is the usual again
      return {"slow_down_over", fmt::format("{:.1f} examples/s again, after {:.0f} s",
                                            examples / pace_.lately_s(), pace_.slow_for_s())};
  }
  return {};
}

void SlowDowns::remember_usual() {
  moments_.start = ask_();
  const bool settles = ++usual_news_ <= settling;
  if (settles) moments_.usual = next_usual_ = moments_.start;
  if (settles || usual_news_ % a_while != 0) return;
  moments_.usual = std::exchange(next_usual_, moments_.start);
}

SlowDowns::News SlowDowns::slow(double examples, bool saving) {
  moments_.now = ask_();
  const double usual = examples / pace_.usual_s(), lately = examples / pace_.lately_s();
  return {"slow_down",
          fmt::format("{:.1f} examples/s for {:.0f} s, {:.0f} % less than the usual "
                      "{:.1f}{}; {}",
                      lately, pace_.slow_for_s(), 100 * (1 - lately / usual), usual,
                      saving ? "; a save is in flight" : "", what_grew(moments_, hosts_))};
}

}  // namespace ringtrain
