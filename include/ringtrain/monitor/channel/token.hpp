#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

namespace ringtrain::monitor {

/// 128 random bits which only the ranks of one job know: they travel through MPI.
using JobToken = std::array<std::byte, 16>;

/// A process of a host, as others on it see it.
struct ProcessName {
  std::uint64_t of = 0;  ///< the namespace that the id is of
  std::int64_t id = 0;   ///< 0: not known
};

}  // namespace ringtrain::monitor
