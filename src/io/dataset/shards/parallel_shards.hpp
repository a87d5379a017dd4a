#pragma once
#include <cstddef>
#include <functional>

namespace ringtrain::io {

/// Calls work(0) to work(count - 1), low numbers first, on `threads` threads of its own, and waits
/// for them. Every five seconds it calls progress(calls done), and whenever it is another one
/// oldest(the first that is begun and not done), on the calling thread. Once one call throws no
/// other begins, and the lowest number's exception is rethrown: the same one, whatever the threads
/// do.
void each_shard(std::size_t count, int threads, const std::function<void(std::size_t)>& work,
                const std::function<void(std::size_t)>& progress,
                const std::function<void(std::size_t)>& oldest = nullptr);

}  // namespace ringtrain::io
