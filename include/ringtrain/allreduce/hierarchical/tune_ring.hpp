#pragma once
#include "ringtrain/allreduce/mpi/session.hpp"
#include "ringtrain/allreduce/ring/tuning.hpp"

namespace ringtrain::allreduce {

/// Times messages, a stream and sums of `bucket_bytes`, or 512 KiB where that is more, between the
/// hosts; nothing on one host. Takes tens of milliseconds at 1 Gbit/s, two or three seconds at
/// 100 Mbit/s and 20 ms a hop. Collective, on the main thread, while no sums are in flight.
RingTable measure_ring(const MpiSession& session, double bucket_bytes);

}  // namespace ringtrain::allreduce
