#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ringtrain/monitor/channel/messages.hpp"
#include "ringtrain/monitor/channel/rendezvous.hpp"

namespace ringtrain::train {

/// Another rank's end: brings its slice of a save to rank 0 while training goes on, on a thread of
/// its own. It tries again until rank 0 has it, or does not want it. For one thread; throws
/// nothing.
class ShardSender {
 public:
  /// `endpoints` are tried in turn. `warn`, on that thread, gets Rank0Connector's warnings.
  ShardSender(const monitor::JobToken& token, int rank, std::vector<monitor::Endpoint> endpoints,
              std::function<void(const std::string&)> warn = {});
  ~ShardSender();

  /// Sends `values`, which stay until drop().
  void send(std::uint64_t save, std::span<const float> values);
  /// Gives up what is not sent yet: nothing touches the values from here on.
  void drop();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ringtrain::train
