#include "train/loop/stop_control.hpp"

#include <algorithm>
#include <csignal>
#include <span>
#include <utility>

namespace ringtrain::train {

void StopControl::before_step(const Position&, host::StepRequest& request) {
  const host::StepRequest mine = wanted();
  request.stop = mine.stop;
  request.signal = mine.signal;
}

void StopControl::step_done(const StepReport& report) {
  signals_.first_step_done();
  agree({report.outcome.stop, report.outcome.signal});
}

void StopControl::step_timed(const StepReport&, double wall_s) {
  slowest_step_s_ = std::max(0.99 * slowest_step_s_, wall_s);  // one long ago counts for less
}

void StopControl::evaluated(const Position&, const Evaluation& result) {
  save_unsaid_ = result.unsaid.signal == SIGUSR1;
}

host::StepRequest StopControl::wanted() {
  if (signals_.signal() != 0 || out_of_time()) return {true, signals_.signal()};
  const bool save = std::exchange(save_unsaid_, false);
  return {false, signals_.take_save() || save ? SIGUSR1 : 0};
}

void StopControl::agree(const host::StepRequest& request) {
  if (request.stop && !stopping_) {
    stopping_ = true;
    signal_ = request.signal;
  }
  saving_ = saving_ || request.signal == SIGUSR1;
}

void StopControl::fail(const Error& failure) {
  if (std::exchange(stopping_, true)) return;
  failure_ = failure;
}

bool StopControl::take_save() { return std::exchange(saving_, false); }

void StopControl::share_save_s(const allreduce::MpiSession& session) {
  session.broadcast(std::as_writable_bytes(std::span(&save_s_, 1)), 0);
}

// What is still to come must fit: the steps under way, the save under way and the last one, and
// leaving MPI.
bool StopControl::out_of_time() const {
  constexpr double leaving_s = 1;
  if (!max_time_s_) return false;
  return run_watch_.elapsed() + 3 * slowest_step_s_ + 2 * save_s_ + leaving_s > *max_time_s_;
}

}  // namespace ringtrain::train
