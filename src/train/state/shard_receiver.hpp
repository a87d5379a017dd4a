#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "monitor/channel/rank_listener.hpp"
#include "ringtrain/monitor/channel/messages.hpp"

namespace ringtrain::train {

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
