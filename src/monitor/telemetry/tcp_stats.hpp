#pragma once

namespace ringtrain::monitor {

/// This process's TCP connections, MPI's and NCCL's too.
struct TcpStats {
  /// Of those that sent something within the last two seconds: until it is acknowledged, where that
  /// takes longest. It is long where packets wait before a slow link. 0: there are none.
  double slowest_round_trip_s = 0;
  /// Seconds since they were made in which something was under way to other addresses, summed over
  /// all. Where one link holds a job up, its sender is the one that sends all the time.
  double sending_s = 0;
};
/// As the kernel accounts for them (tcp(7), TCP_INFO). Reads only; throws nothing.
TcpStats read_tcp_stats();

}  // namespace ringtrain::monitor
