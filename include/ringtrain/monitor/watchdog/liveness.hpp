#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ringtrain/base/error.hpp"
#include "ringtrain/monitor/progress.hpp"
#include "ringtrain/monitor/watchdog/process_state.hpp"

namespace ringtrain::monitor {

/// What a rank tells of itself, once a second. Seconds count ticks of its own watchdog thread, so
/// that time in which the whole process was stopped is not counted.
struct RankStatus {
  std::uint64_t step = 0;  ///< under way, or the last
  metrics::Phase phase = metrics::Phase::init;
  double in_phase_s = 0;       ///< without moving
  double limit_s = 0;          ///< longer is too long
  std::uint64_t meetings = 0;  ///< in sums on its host, that it has come to
  std::string item = {};       ///< a path, say, that it is at; empty: there is none
};

/// What rank 0 knows of a rank.
struct RankHealth {
  RankStatus status;
  RankStats account{};  ///< so far
  double silent_s = 0;  ///< since it was last heard
  double late_s = 0;    ///< a tick of its watchdog was lately, as it said itself
  ProcessState process = ProcessState::unknown;  ///< now that it is silent or lost, where seen
  bool acknowledged = true;                      ///< its host's kernel answers
  bool connected = false;                        ///< it has been heard at least once
  bool lost = false;    ///< its connection has ended without a goodbye and is not made again
  double lost_s = 0;    ///< since when
  bool left = false;    ///< it has said goodbye
  int host = 0;         ///< its number
  std::string stack{};  ///< of its main thread, once it was told that the job ends
};

/// Why a job cannot go on, and who is to blame.
struct Verdict {
  enum class Kind { dead, silent, disconnected, stuck };
  Kind kind = Kind::stuck;
  std::vector<int> culprits;                    ///< empty: all ranks wait for one another
  metrics::Phase phase = metrics::Phase::init;  ///< they are stuck in

  /// 71 for ranks that are gone, 72 for stuck ones.
  Exit code() const { return kind == Kind::stuck ? Exit::stuck : Exit::rank_lost; }
};

/// For how long a rank may be silent: `silence_s`, and more where it is rather not scheduled than
/// stopped. One that is seen to want a CPU may for five minutes. One that cannot be seen, but whose
/// host answers, may for longer the later its own ticks were before, up to six times.
double patience_s(const RankHealth& rank, double silence_s);

/// A rank is lost when its process has ended or it is silent for longer than patience_s(), and
/// stuck when it is in a phase for longer than its limit. One whose connection is lost, but whose
/// process lives or cannot be seen, has as long to make it again. Ranks that wait for others are to
/// blame only when all wait: then those that are behind are, or nobody. Between hosts nobody is, as
/// a rank may still wait for the last piece of a sum that others have whole, and are a step ahead.
/// While there are ranks that were never heard, they may wait for 900 s. Nothing but a rank that
/// has ended is judged while `lenient`, after a pause of the whole job.
std::optional<Verdict> judge(std::span<const RankHealth> ranks, double silence_s, bool lenient);

/// How long a rank may be in `phase` without moving: so long that the job ends after 30 s or
/// ten steps of `median_step_s`, whichever is longer. More for what happens once, and for the first
/// steps, which nothing is known of (median 0). `last_save_s`: what the user allows the last
/// checkpoint. While a job starts, files and plans tell of each bit of progress: a minute without
/// any is a disk that does not answer.
double limit_s(metrics::Phase phase, double median_step_s, double last_save_s);

/// What to tell when a rank works within its limit, but others have waited for it for longer than
/// `patience_s`: "rank 2 on node3 has been in init for 60 s, and others wait for it; its limit is
/// 3600 s". Else empty.
std::string long_wait(std::span<const RankHealth> ranks, std::span<const std::string> hosts,
                      double patience_s);

/// "its process is stopped", as far as that is known of a rank that is not heard.
std::string why_silent(const RankHealth& rank);
/// "rank 2 on node3 has been in data of step 9 for 34 s; its limit is 30 s"; at the start "rank 0
/// on node1 has been at open /mnt/metrics.jsonl for 61 s without progress; its limit is 60 s"
std::string describe(const Verdict& verdict, std::span<const RankHealth> ranks,
                     std::span<const std::string> hosts);
/// " how=silent ranks=2 hosts=node3", for the line that programs read; of nobody: " how=stuck".
std::string details(const Verdict& verdict, std::span<const std::string> hosts);
/// A line for each rank: host, step, phase, seconds in it, when it was last heard.
std::string table(std::span<const RankHealth> ranks, std::span<const std::string> hosts);

}  // namespace ringtrain::monitor
