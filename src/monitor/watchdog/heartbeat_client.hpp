#pragma once
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ringtrain/monitor/channel/messages.hpp"
#include "ringtrain/monitor/channel/rendezvous.hpp"

namespace ringtrain::monitor {

/// Another rank's end of the side channel. It makes a connection that is lost again, for as long as
/// it lives. For one thread; throws nothing.
class HeartbeatClient {
 public:
  /// `endpoints` are tried in turn until rank 0 answers.
  HeartbeatClient(const JobToken& token, int rank, std::vector<Endpoint> endpoints);
  HeartbeatClient(HeartbeatClient&&) noexcept;
  ~HeartbeatClient();

  /// Sends what it has and listens for this long.
  void run_for(std::chrono::milliseconds time);
  /// Queues the newest state, with the item that the main thread is at; one that waits to be sent
  /// is replaced.
  void send(const Heartbeat& beat, const std::string& item = {});
  /// The answer to ending(): the last thing that is sent.
  void send_stack(const Heartbeat& beat, const std::string& item, const std::string& stack);

  bool connected() const;
  /// What Rank0Connector says.
  const std::string& trouble() const;
  std::string take_warning();
  /// Rank 0 has said goodbye: on its own, or as it has heard that this rank leaves.
  bool rank_0_left() const;
  /// The connection was ended without that, and rank 0 has not been heard on another one yet.
  bool lost() const;
  /// Since rank 0 was last heard.
  double silent_s() const;
  /// How late rank 0's ticks were lately, as it said; and whether its host answers.
  double rank_0_late_s() const;
  bool acknowledged() const;
  void forgive_silence();

  /// Rank 0's word that the job ends.
  struct Ending {
    int exit_code = 0;
    std::string why;
  };
  const std::optional<Ending>& ending() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ringtrain::monitor
