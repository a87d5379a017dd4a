#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "train/side_messages.hpp"
#include "train/verdict.hpp"

namespace ringtrain {

/// Rank 0's end of the side channel: listens on all interfaces for the other ranks. Who does not
/// know the token is not answered. With one rank it listens for nobody. For one thread; throws
/// Error only from the constructor.
class SideServer {
 public:
  SideServer(const JobToken& token, int ranks);
  ~SideServer();

  std::uint16_t port() const;
  /// Serves the ranks for this long; their silence grows by as much. Whether the host of a silent
  /// one answers is asked once a second.
  void run_for(std::chrono::milliseconds time);
  /// How late this rank's ticks were lately: the others hear of it.
  void set_late(double seconds);
  /// By rank. The caller fills in that of rank 0, which has no connection.
  std::span<RankView> ranks();
  /// As that rank named itself.
  ProcessName process(std::size_t rank) const;
  /// After a pause of this process: nobody has been silent yet.
  void forgive_silence();
  /// Tells all ranks that this one's end will be no failure. run_for() sends it.
  void say_goodbye();
  /// Tells all ranks that the job ends, likewise.
  void end_job(int exit_code, std::string_view why);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ringtrain
