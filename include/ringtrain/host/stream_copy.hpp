#pragma once
#include <span>

namespace ringtrain::host {

/// Copies `from` to `to`, of the same size, on all OpenMP threads and past the caches: for what
/// this process does not read again soon, such as a snapshot.
void stream_copy(std::span<const float> from, std::span<float> to);

}  // namespace ringtrain::host
