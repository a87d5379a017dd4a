#include "ringtrain/monitor/watchdog/watchdog.hpp"

#include <pthread.h>

#include <exception>

#include "ringtrain/host/stack_trace.hpp"

namespace ringtrain::monitor {

Watchdog::Watchdog(const allreduce::MpiSession& session, const config::Options& options) {
  const bool on = options.watchdog == config::Watching::on;
  if (session.broadcast(on ? "on" : "").empty()) return;
  host::prepare_stacks();
  auto watch = session.rank() == 0 ? make_coordinator_watch(session, progress_, options, sampler_,
                                                            notices_, accounts_)
                                   : make_worker_watch(session, progress_, options, sampler_);
  thread_ = std::thread([this, &session, watch = std::move(watch)] {
    try {
      watch->run(until_);
    } catch (const std::exception& failure) {
      session.abort(Error("watchdog", failure.what()));
    }
  });
  ::pthread_setname_np(thread_.native_handle(), "watchdog");
}

void Watchdog::accounts(std::vector<RankStats>& of_ranks) {
  if (thread_.joinable()) return accounts_.get(of_ranks);
  of_ranks.assign(1, {progress_.spent(), sampler_.look(0, progress_.no_cpu_s())});
}

Watchdog::~Watchdog() {
  progress_.enter(metrics::Phase::ranks);
  until_ = std::uncaught_exceptions() > 0 ? Watch::Until::now : Watch::Until::alone;
  if (thread_.joinable()) thread_.join();
}

}  // namespace ringtrain::monitor
