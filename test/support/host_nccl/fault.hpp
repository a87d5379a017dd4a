#pragma once
#include <cstdint>

namespace ringtrain::host_nccl {

/// What a test wants to go wrong on this rank: SIMULATED_NCCL_FAULT=KIND:RANK:N, of rank RANK, from
/// its collective N on, counted from 1 as the GPU begins them. KIND is one of these.
struct Fault {
  enum class Kind {
    none,
    slow,     ///< each collective begins 20 ms late
    hang,     ///< the collective never begins, and nobody is told
    error,    ///< it never begins, and this rank has an asynchronous error
    dead,     ///< the process kills itself
    late,     ///< nothing goes wrong but that the rank never joins the communicator
    stuck,    ///< as hang, and ncclCommAbort does not return
    capture,  ///< it is refused where a stream is captured
    block,    ///< where calls block, that of the collective does not return; N counts calls
  };
  Kind kind = Kind::none;
  std::uint64_t from = 1;

  /// Of `rank`, as the environment says. Throws std::invalid_argument.
  static Fault of(int rank);
  bool is(Kind asked, std::uint64_t collective) const {
    return kind == asked && collective >= from;
  }
};

}  // namespace ringtrain::host_nccl
