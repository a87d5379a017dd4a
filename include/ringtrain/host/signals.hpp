#pragma once
#include <csignal>
#include <functional>
#include <memory>
#include <semaphore>
#include <thread>

namespace ringtrain::host {

/// In a signal's place: the state is not finite and may not be saved. No sum of signals comes to
/// it.
inline constexpr int save_refused = 1 << 20;

/// What a rank, or all of them, want after the step under way.
struct StepRequest {
  bool stop = false;
  int signal = 0;     ///< that made it ask; SIGUSR1 without `stop`: save and go on; save_refused
  bool save = false;  ///< rank 0: that all ranks save their shards of the state
  bool measure_links = false;  ///< rank 0: that the hosts time the links of our ring
  bool unreadable = false;     ///< that all ranks hear of samples that this one could not read
};

/// What the requests of all ranks come to: how many want to stop, how many have a signal, and the
/// sum of those signals' numbers. Signals that differ count as SIGTERM. Leaves the rest false.
StepRequest agreed_request(double stops, double signalled, double signals);

/// From now on SIGUSR1 does not end the process but waits for a SignalThread. Before any thread
/// starts; it holds across exec.
void hold_save_signals();

/// Takes SIGTERM, SIGINT, SIGHUP, SIGXCPU and SIGUSR1 for the whole process. What StopSignals makes
/// of them, or the default, happens on its thread: no thread that starts later, of any library,
/// runs a handler amid its work. Made on the main thread before the others start, which takes
/// signals again behind it.
class SignalThread {
 public:
  SignalThread();
  ~SignalThread();
  SignalThread(const SignalThread&) = delete;

 private:
  sigset_t before_;  // what this thread blocked
  std::binary_semaphore ended_{0};
  std::thread thread_;
};

/// The signal to stop that came since the StopSignals was made, or 0. From any thread.
int stop_signal();

/// Turns the first SIGTERM, SIGINT, SIGHUP or SIGXCPU into a request to stop after the current
/// step, and SIGUSR1 into one to save. SIGHUP and SIGXCPU that are ignored stay so. A second one to
/// stop ends the process at once, unless it comes within three seconds: then it is the same
/// request, from mpirun. So is any SIGXCPU. One lives, in run(), on the main thread.
///
/// Until first_step_done(), the process ends `patience_s` after the first signal by itself, with
/// 128 + n, whatever its threads wait for: nothing is lost with it. Uses SIGALRM.
class StopSignals {
 public:
  explicit StopSignals(unsigned patience_s = 6);
  /// From here on SIGUSR1 does nothing, and the first signal to stop only waits for the next
  /// StopSignals: it must not end a rank that leaves while rank 0 makes the last save.
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;

  int signal() const { return stop_signal(); }
  /// From here on there is something to save: a signal waits for the step under way.
  void first_step_done();
  /// Whether SIGUSR1 came since the last call.
  bool take_save();

  /// A thread that lives as long as this object, or ends it.
  class Waiter;
  /// Calls `act` on a thread of its own as soon as the first signal to stop is there, again every
  /// 20 ms until it returns true; whatever the main thread does meanwhile. The end of the launcher
  /// counts as a SIGTERM: ranks outlive it by a second at most. Ended by its destructor.
  std::shared_ptr<Waiter> call_at_stop(std::function<bool()> act);
};

}  // namespace ringtrain::host
