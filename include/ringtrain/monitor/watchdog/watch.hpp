#pragma once
#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "ringtrain/allreduce/mpi/session.hpp"
#include "ringtrain/base/text.hpp"
#include "ringtrain/config/options.hpp"
#include "ringtrain/host/launcher.hpp"
#include "ringtrain/monitor/progress.hpp"
#include "ringtrain/monitor/rank_stats.hpp"
#include "ringtrain/monitor/telemetry/system_sampler.hpp"
#include "ringtrain/monitor/watchdog/liveness.hpp"

namespace ringtrain::monitor {

/// What each rank last told of itself, by rank, from one thread to another.
class RankStatsMailbox {
 public:
  void set(std::vector<RankStats> of_ranks) {
    const std::lock_guard lock(mutex_);
    of_ranks_ = std::move(of_ranks);
  }
  /// Nothing before they were set.
  void get(std::vector<RankStats>& of_ranks) const {
    const std::lock_guard lock(mutex_);
    of_ranks = of_ranks_;
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

/// For all that a rank does to end the job. A job that has lost a rank ends within 15 s, of which
/// silence takes ten.
constexpr std::chrono::seconds end_patience(Exit code) {
  return std::chrono::seconds(code == Exit::rank_lost ? 4 : 15);
}

/// Notices that the process was stopped for a while: a tick is more than 3 s late. Then nothing is
/// judged for 10 s of ticks.
class SuspendDetector {
 public:
  /// Called every tick: whether this one was so late.
  bool look(double tick_s) {
    constexpr double remembered_s = 30;
    const double late_s = watch_.lap() - tick_s;
    lately_s_ = std::max(late_s, lately_s_ * (1 - tick_s / remembered_s));
    if (late_s > noticed_s) still_s_ += late_s;
    left_s_ = late_s > 3 ? 10 : std::max(0.0, left_s_ - tick_s);
    return late_s > 3;
  }
  bool lenient() const { return left_s_ > 0; }
  /// The latest that a tick was in the last half minute; less the longer ago.
  double lately_s() const { return lately_s_; }
  /// For how long the process has stood still, as far as that made ticks late.
  double still_s() const { return still_s_; }

 private:
  static constexpr double noticed_s = 0.02;  // less is what waking up may take

  Stopwatch watch_;
  double left_s_ = 0, still_s_ = 0, lately_s_ = 0;
};

/// What the watchdog's thread does on one rank. It tells where the main thread is, hears of the
/// others, and ends the job when it cannot go on.
class Watch {
 public:
  /// How long to watch: until further notice, until nobody is left to watch, or not any more.
  enum class Until { told, alone, now };

  Watch(const allreduce::MpiSession& session, const Progress& progress,
        const config::Options& options, SystemSampler& sampler)
      : session_(session), progress_(progress), options_(options), sampler_(sampler) {}
  virtual ~Watch() = default;

  void run(const std::atomic<Until>& until) {
    while (!over(until) && !session_.ending()) {
      if (pauses_.look(tick_s)) forgive();
      listen(tick);
      look_at_own();
      if (!over(until) && !session_.ending()) judge();
    }
    say_goodbye(until == Until::alone && !session_.ending());
  }

 protected:
  virtual void forgive() = 0;
  virtual void listen(std::chrono::milliseconds time) = 0;
  virtual void judge() = 0;
  /// Whether no rank is left that this one watches.
  virtual bool alone() = 0;
  /// `in_peace`: nothing has failed, and there is time to be heard.
  virtual void say_goodbye(bool in_peace) = 0;

  static constexpr std::chrono::milliseconds tick{100};
  static constexpr double tick_s = 0.1;
  static constexpr std::chrono::milliseconds goodbye_tick{10};  // which the job's end waits for
  static constexpr double looked_at_s = 3;  // of silence; then it is looked at why

  const allreduce::MpiSession& session() const { return session_; }
  const config::Options& options() const { return options_; }
  const Progress& progress() const { return progress_; }
  const RankStatus& own() const { return own_; }
  /// With this rank, mpirun, or its daemon here, shall end, too. It gets the time that it needs to
  /// end other ranks by itself; where a host may be gone, no more. To be called before anything
  /// that may hang, as a disk.
  void end_launcher_of_job(Exit code) const {
    constexpr std::chrono::seconds lost{1}, other{8};
    const auto launcher = session_.size() > 1 ? host::launcher_process() : std::nullopt;
    if (launcher)
      host::end_launcher(*launcher,
                         (code == Exit::rank_lost ? lost : other) + 2 * host::time_to_kill_ranks());
  }
  /// What this rank has spent up to now.
  RankStats account() {
    return {progress_.spent(), sampler_.look(pauses_.still_s(), progress_.no_cpu_s())};
  }
  bool lenient() const { return pauses_.lenient(); }
  double late_s() const { return pauses_.lately_s(); }
  /// Whether a rank of this host that is not heard has ended, is stopped, say, or only gets no CPU.
  ProcessState state_of_unheard(std::size_t rank, const RankHealth& health,
                                const ProcessName& process) const {
    const auto& host_of = session_.host_of();
    const bool here = host_of[rank] == host_of[static_cast<std::size_t>(session_.rank())];
    const bool unheard = !health.left && (health.lost || health.silent_s > looked_at_s);
    return here && unheard ? state_of(process) : ProcessState::unknown;
  }
  /// Longer, and a rank is lost.
  double silence_s() const { return options_.watchdog_silence_s; }

 private:
  bool over(Until until) { return until == Until::now || (until == Until::alone && alone()); }
  void look_at_own() {
    const Progress::Now now = progress_.now();
    const std::uint64_t waits = session_.waits();
    const metrics::Phase phase = waits % 2 == 0 ? now.phase : metrics::Phase::ranks;
    const double in_phase_s = now.moved + waits == moved_ ? own_.in_phase_s + tick_s : 0;
    moved_ = now.moved + waits;
    own_ = {now.step,
            phase,
            in_phase_s,
            limit_s(phase, progress_.median_step_s(), options_.final_save_timeout_s),
            session_.meetings(),
            phase == metrics::Phase::ranks ? "" : printable(progress_.item())};
  }

  const allreduce::MpiSession& session_;
  const Progress& progress_;
  const config::Options& options_;
  SystemSampler& sampler_;
  SuspendDetector pauses_;
  std::uint64_t moved_ = 0;  // changes when the main thread does something else
  RankStatus own_;
};

/// Rank 0's: hears all ranks and judges. What is passed outlives it. Collective, as the other one.
std::unique_ptr<Watch> make_coordinator_watch(const allreduce::MpiSession& session,
                                              const Progress& progress,
                                              const config::Options& options,
                                              SystemSampler& sampler, TextMailbox& notices,
                                              RankStatsMailbox& accounts);
/// Another rank's: knows rank 0 alone.
std::unique_ptr<Watch> make_worker_watch(const allreduce::MpiSession& session,
                                         const Progress& progress, const config::Options& options,
                                         SystemSampler& sampler);

}  // namespace ringtrain::monitor
