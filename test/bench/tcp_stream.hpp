#pragma once
#include <cstddef>

#include "ringtrain/allreduce/mpi/session.hpp"
#include "ringtrain/base/file.hpp"

namespace ringtrain {

/// A plain TCP connection from rank 0 to the last rank, with the kernel's own settings: what the
/// network gives.
class TcpStream {
 public:
  /// Collective.
  explicit TcpStream(const allreduce::MpiSession& session);
  /// Sends so many bytes and waits until all are there. Collective.
  void carry(std::size_t bytes);
  /// Both ends send so many bytes and receive as many at once, as two hosts do in a ring, on one
  /// thread each. Collective.
  void exchange(std::size_t bytes);

 private:
  FileDescriptor end_;
  bool sends_ = false;
};

}  // namespace ringtrain
