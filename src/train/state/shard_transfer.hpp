#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "monitor/channel/rank_listener.hpp"
#include "ringtrain/monitor/channel/messages.hpp"
#include "ringtrain/monitor/channel/rendezvous.hpp"

namespace ringtrain::train {

// What goes over a connection that brings a rank's slice of a save to rank 0, as it lies in memory:
// both ends' proofs (handshake.hpp), a ShardHello, rank 0's ShardAnswer, then, where it is
// `wanted`, the numbers, and `taken` once they are all there. One connection brings one slice.

struct ShardHello {
  std::uint64_t save = 0;   ///< numbered from 1, alike on all ranks
  std::uint64_t count = 0;  ///< numbers that follow
};

enum class ShardAnswer : std::uint8_t {
  wanted,    ///< go on
  early,     ///< rank 0 is not there yet: try again
  unwanted,  ///< it has it already, or has given that save up
  taken,
};

/// Another rank's end: brings its slice of a save to rank 0 while training goes on, on a thread of
/// its own. It tries again until rank 0 has it, or does not want it, also where a connection is
/// lost on the way. For one thread; throws nothing.
class ShardSender {
 public:
  /// `endpoints` are tried in turn. `warn`, on that thread, gets Rank0Connector's warnings, and why
  /// a save was given up.
  ShardSender(const monitor::JobToken& token, int rank, std::vector<monitor::Endpoint> endpoints,
              std::function<void(const std::string&)> warn = {});
  ~ShardSender();

  /// Sends `values`, which stay until drop(), once `ready`, which is asked on that thread, says so;
  /// null: they are. Where it throws, that save is given up.
  void send(std::uint64_t save, std::span<const float> values, std::function<bool()> ready = {});
  /// Gives up what is not sent yet: nothing touches the values from here on.
  void drop();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// Where the numbers of a rank's slice go, one range behind the other.
using SlicePlaces = std::vector<std::span<float>>;

/// Rank 0's end of the connections on which the other ranks' slices of the training state come for
/// a checkpoint, while training goes on: a thread of its own has a RankListener for them and puts
/// them where they belong. For one thread.
class ShardReceiver {
 public:
  /// `addresses` and `tell`, which is called on that thread, as RankListener has them. Throws Error
  /// where the system gives no port.
  ShardReceiver(const monitor::JobToken& token, int ranks,
                const std::vector<std::string>& addresses, monitor::RankListener::Tell tell = {});
  ~ShardReceiver();

  std::vector<monitor::Endpoint> endpoints() const;
  /// From now on the slices of save `save` are taken, and of none before it: that of rank r goes to
  /// `places[r]`; a rank without places has none. Places stay until all slices are there, or
  /// forget(). Does not wait.
  void expect(std::uint64_t save, std::vector<SlicePlaces> places);
  /// Whether all slices that were expected are there, or given up. Does not wait.
  bool complete() const;
  /// The ranks whose slices are not there.
  std::vector<int> missing() const;
  /// Gives those up: from here on nothing touches their places.
  void forget();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ringtrain::train
