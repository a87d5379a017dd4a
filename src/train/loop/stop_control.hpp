#pragma once
#include <optional>

#include "ringtrain/allreduce/mpi/session.hpp"
#include "ringtrain/base/clock.hpp"
#include "ringtrain/base/error.hpp"
#include "ringtrain/host/signals.hpp"
#include "train/loop/hook.hpp"

namespace ringtrain::train {

/// Asks all ranks to stop where this one got a signal or --max-time is up, or to save where it got
/// SIGUSR1, and keeps what all ranks have agreed on.
class StopControl final : public Hook {
 public:
  /// `run_watch`: of the whole run, from the start of the process.
  StopControl(std::optional<double> max_time_s, const Stopwatch& run_watch)
      : max_time_s_(max_time_s), run_watch_(run_watch) {}

  void before_step(const Position&, host::StepRequest& request) override;
  void step_done(const StepReport& report) override;
  void step_timed(const StepReport&, double wall_s) override;
  void evaluated(const Position&, const Evaluation& result) override;

  /// What this rank asks of all ranks with the next sums. A request to save is given once.
  host::StepRequest wanted();
  /// All ranks have agreed on `request`.
  void agree(const host::StepRequest& request);
  /// All ranks have found `failure` alike: training ends as if they had agreed to stop, and then
  /// the job with that failure.
  void fail(const Error& failure);
  /// Nothing where a request to stop came first.
  const std::optional<Error>& failure() const { return failure_; }
  /// All ranks end after the step under way.
  bool stopping() const { return stopping_; }
  /// By which signal, on all ranks; 0: --max-time is up, or nothing stops them.
  int signal() const { return signal_; }
  int exit_code() const { return signal_ != 0 ? 128 + signal_ : 0; }
  /// Whether all ranks are to save, since the last call.
  bool take_save();

  /// How long a save takes: training stops early enough for the last one.
  void set_save_s(double seconds) { save_s_ = seconds; }
  /// Rank 0's, on all ranks: it alone knows. Collective.
  void share_save_s(const allreduce::MpiSession& session);

  /// The signals that this process gets.
  host::StopSignals& signals() { return signals_; }

 private:
  bool out_of_time() const;

  const std::optional<double> max_time_s_;
  const Stopwatch run_watch_;
  host::StopSignals signals_;
  bool save_unsaid_ = false;  // a SIGUSR1 that came at the end of an evaluation
  bool stopping_ = false, saving_ = false;
  int signal_ = 0;
  std::optional<Error> failure_;
  double slowest_step_s_ = 0, save_s_ = 0;
};

}  // namespace ringtrain::train
