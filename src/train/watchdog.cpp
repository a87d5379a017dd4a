#include "train/watchdog.hpp"

#include "train/stacks.hpp"
#include "train/watch.hpp"

namespace ringtrain {

Watchdog::Watchdog(const MpiSession& session, double last_save_s) {
  prepare_stacks();
  auto watch = session.rank() == 0 ? make_first_watch(session, progress_, last_save_s, notices_)
                                   : make_other_watch(session, progress_, last_save_s);
  thread_ = std::thread([this, &session, watch = std::move(watch)] {
    try {
      watch->run(leaving_);
    } catch (const std::exception& failure) {
      session.abort(Error("watchdog", failure.what()));
    }
  });
}

Watchdog::~Watchdog() {
  leaving_ = true;
  thread_.join();
}

}  // namespace ringtrain
