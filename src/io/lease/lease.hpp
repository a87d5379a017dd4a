#pragma once
// Room `io/lease`: which run holds a checkpoint directory. The lock file names the holder, who
// beats in it; another run takes over only from one that is seen dead or silent (decisions/0017).
//
// Threads: the writer process's main one, and one each that beats and that watches the path.
//
// Where locks do not hold, as on some network file systems, the beat alone decides.
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ringtrain::io {

/// Who holds a checkpoint directory.
struct LeaseHolder {
  std::string run, host;
  std::string boot;  ///< of the host's kernel: another after a restart; empty where it is not told
  std::string job;   ///< Slurm's; empty: none
  int process = 0;
  std::uint64_t started = 0;  ///< the process, as ProcessStatus has it; 0: not known
  std::uint64_t pids = 0;     ///< the PID namespace that `process` is of; 0: not known

  /// For messages: "run R on host H, process P".
  std::string text() const;
};

/// This process, as the holder for run `run`.
LeaseHolder this_process(const std::string& run);
/// Whether its process is seen to live, on this host; false also where it cannot be seen.
bool is_seen_alive(const LeaseHolder& holder);

/// What the file `lock` of a checkpoint directory says: docs/reference/checkpoint-format.md.
struct Lease {
  enum class State { held, finishing, released };
  State state = State::held;
  LeaseHolder holder;
  std::string token;  ///< drawn by the holder when it took the directory
};

/// The file's text with beat 0.
std::string to_text(const Lease& lease);
/// nullopt for what no build of this format wrote: empty, of an earlier build, or planted.
std::optional<Lease> lease_from_text(std::string_view text);

/// Where the file's first line and the beat are, which change in place, and how long they are.
std::string lease_head(Lease::State state);
std::string lease_beat(std::uint64_t beat);
std::size_t lease_beat_offset();
/// More is not read.
inline constexpr std::size_t longest_lease = 1024;

/// A holder that is silent for `silence` is believed to be dead.
inline constexpr std::chrono::milliseconds lease_silence{30'000};
/// A heartbeat wakes a disk no more often than this, and six may be lost.
inline constexpr std::chrono::milliseconds lease_beat_interval{5'000};
/// A dead trainer's writer lets go only once its last system call returns.
inline constexpr std::chrono::milliseconds lock_patience{2'000};

struct LeaseTerms {
  std::chrono::milliseconds beat = lease_beat_interval, silence = lease_silence,
                            patience = lock_patience;
};

/// What a run finds that wants the directory.
struct LockFileState {
  bool exists = false;
  std::string text;         ///< the first longest_lease bytes
  bool busy = false;        ///< another one has the kernel's lock on the file
  bool seen_alive = false;  ///< the process that it names
};

/// Decides whether a directory may be taken, from what is seen of its lock file again and again. It
/// knows no clock but the one whose times it is given, and compares no times of two hosts: a holder
/// is silent while the file's bytes stay the same.
class LeaseJudge {
 public:
  using Clock = std::chrono::steady_clock;
  enum class Verdict { take, take_over, wait, refuse };

  /// `is_local`: one kernel has all locks of the file system; `locks_hold`: a second lock on a file
  /// was seen to be refused. `last_save` is how long a holder is waited for that is finishing.
  LeaseJudge(LeaseHolder self, bool is_local, bool locks_hold, LeaseTerms terms,
             Clock::duration last_save);

  Verdict judge(const LockFileState& sight, Clock::time_point now);
  /// The holder seen last, for messages.
  std::string holder() const;
  bool is_finishing() const { return finishing_; }

 private:
  void observe(const LockFileState& sight, Clock::time_point now);
  bool same_host() const;
  bool is_own() const;

  const LeaseHolder self_;
  const bool is_local_, locks_hold_;
  const LeaseTerms terms_;
  const Clock::duration last_save_;
  std::optional<LockFileState> seen_;
  std::optional<Lease> lease_;
  bool moved_ = false, finishing_ = false;
  Clock::time_point still_since_, waits_since_, looked_at_;
};

}  // namespace ringtrain::io
