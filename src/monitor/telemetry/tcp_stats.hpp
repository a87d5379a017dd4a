#pragma once

namespace ringtrain::monitor {

/// This process's TCP connections, MPI's and NCCL's too.
struct TcpStats {
  /// The longest time until what was sent within the last two seconds is acknowledged. It is long
  /// where packets wait before a slow link. 0: nothing was sent.
  double slowest_round_trip_s = 0;
  /// Seconds since they were made in which something was under way to other addresses, summed over
  /// all. Where one link holds a job up, its sender is the one that sends all the time.
  double sending_s = 0;
};
/// Reads what the kernel accounts for (tcp(7), TCP_INFO). Throws nothing.
TcpStats read_tcp_stats();

}  // namespace ringtrain::monitor
