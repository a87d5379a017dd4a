#pragma once
#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "ringtrain/allreduce/mpi_session.hpp"
#include "train/notices.hpp"
#include "train/progress.hpp"
#include "train/verdict.hpp"

namespace ringtrain {

/// Notices that the process was stopped for a while: a tick is more than 3 s late. Then nothing is
/// judged for 10 s of ticks.
class Pauses {
 public:
  /// Called every tick: whether this one was so late.
  bool look(double tick_s) {
    const bool late = watch_.lap() > 3;
    left_s_ = late ? 10 : std::max(0.0, left_s_ - tick_s);
    return late;
  }
  bool lenient() const { return left_s_ > 0; }

 private:
  Stopwatch watch_;
  double left_s_ = 0;
};

/// What the watchdog's thread does on one rank. It tells where the main thread is, hears of the
/// others, and ends the job when it cannot go on.
class Watch {
 public:
  Watch(const MpiSession& session, const Progress& progress, double last_save_s)
      : session_(session), progress_(progress), last_save_s_(last_save_s) {}
  virtual ~Watch() = default;

  void run(const std::atomic<bool>& leaving) {
    while (!leaving && !session_.ending()) {
      if (pauses_.look(tick_s)) forgive();
      listen(tick);
      look_at_own();
      if (!leaving && !session_.ending()) judge();
    }
    say_goodbye();
  }

 protected:
  virtual void forgive() = 0;
  virtual void listen(std::chrono::milliseconds time) = 0;
  virtual void judge() = 0;
  virtual void say_goodbye() = 0;

  static constexpr std::chrono::milliseconds tick{100};
  static constexpr double tick_s = 0.1, silence_s = 10;  // longer, and a rank is lost

  const MpiSession& session() const { return session_; }
  const RankStatus& own() const { return own_; }
  Work work() const { return progress_.work(); }
  bool lenient() const { return pauses_.lenient(); }

 private:
  void look_at_own() {
    const Progress::Now now = progress_.now();
    const std::uint64_t waits = session_.waits();
    const Activity activity = waits % 2 == 0 ? now.activity : Activity::ranks;
    const double in_phase_s = now.entered + waits == moved_ ? own_.in_phase_s + tick_s : 0;
    moved_ = now.entered + waits;
    own_ = {now.step, activity, in_phase_s,
            limit_s(activity, progress_.median_step_s(), last_save_s_)};
  }

  const MpiSession& session_;
  const Progress& progress_;
  const double last_save_s_;
  Pauses pauses_;
  std::uint64_t moved_ = 0;  // changes when the main thread does something else
  RankStatus own_;
};

/// Rank 0's: hears all ranks and judges. Collective, as the other one.
std::unique_ptr<Watch> make_first_watch(const MpiSession& session, const Progress& progress,
                                        double last_save_s, Notices& notices);
/// Another rank's: knows rank 0 alone.
std::unique_ptr<Watch> make_other_watch(const MpiSession& session, const Progress& progress,
                                        double last_save_s);

}  // namespace ringtrain
