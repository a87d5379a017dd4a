#pragma once
#include <chrono>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "monitor/channel/rank_listener.hpp"
#include "ringtrain/monitor/channel/messages.hpp"
#include "ringtrain/monitor/watchdog/liveness.hpp"

namespace ringtrain::monitor {

/// What `view` is of a rank that has just sent `beat`, with `text` behind it.
void take_beat(RankHealth& view, const Heartbeat& beat, const std::string& text);

/// Rank 0's end of the side channel: a RankListener, and the ranks that have come in. One that
/// comes again, as its connection was lost, is known as before. With one rank it listens for
/// nobody. For one thread; throws Error only from the constructor.
class HeartbeatServer {
 public:
  /// `addresses` and `tell` as RankListener has them.
  HeartbeatServer(const JobToken& token, int ranks, const std::vector<std::string>& addresses,
                  RankListener::Tell tell = {});
  ~HeartbeatServer();

  std::vector<Endpoint> endpoints() const;
  Strangers strangers() const;
  /// Serves the ranks for this long; their silence grows by as much. Whether the host of a silent
  /// one answers is asked once a second.
  void run_for(std::chrono::milliseconds time);
  /// How late this rank's ticks were lately: the others hear of it.
  void set_late(double seconds);
  /// By rank. The caller fills in that of rank 0, which has no connection.
  std::span<RankHealth> ranks();
  /// The process that the rank said it is.
  const ProcessName& process(std::size_t rank) const;
  /// The ranks that have come again since the last call.
  std::set<std::size_t> take_returned();
  /// After a pause of this process: nobody has been silent yet.
  void forgive_silence();
  /// Whether a connection is there. Ranks that leave end theirs once they are answered.
  bool connected() const;
  /// Tells all ranks that this one's end will be no failure. run_for() sends it.
  void say_goodbye();
  /// Tells all ranks that the job ends, likewise.
  void end_job(int exit_code, std::string_view why);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ringtrain::monitor
