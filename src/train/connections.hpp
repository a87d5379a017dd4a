#pragma once

namespace ringtrain {

/// Of this process's TCP connections that have sent something within the last two seconds, MPI's
/// and NCCL's too: the time until it is acknowledged, of that which takes longest. 0: there is
/// none. It is long where packets wait before a slow link. Reads only; throws nothing.
double slowest_round_trip_s();

}  // namespace ringtrain
