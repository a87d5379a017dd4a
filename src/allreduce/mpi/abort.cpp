#include "allreduce/mpi/abort.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <system_error>
#include <thread>

#include "ringtrain/base/error.hpp"

namespace ringtrain::allreduce {

using namespace std::chrono_literals;
using Word = std::atomic<std::uint32_t>;

SharedWord share_word(int file) {
  static_assert(Word::is_always_lock_free);
  check_errno(::ftruncate(file, sizeof(Word)), "ftruncate");  // each rank does: then it is there
  void* place = ::mmap(nullptr, sizeof(Word), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (place == MAP_FAILED) check_errno(-1, "mmap");
  return {static_cast<Word*>(place), [](Word* word) { ::munmap(word, sizeof(Word)); }};
}

bool wait_to_report(Word* reported, int host) noexcept {
  if (reported != nullptr && reported->exchange(1) != 0) {
    std::this_thread::sleep_for(5s);
    return false;
  }
  std::this_thread::sleep_for(report_delay(host));
  return true;
}

std::chrono::milliseconds report_delay(int host) noexcept { return 300ms * std::min(host, 10); }

void exit_after(int seconds, int code) noexcept try {
  std::thread([=] {
    std::this_thread::sleep_for(std::chrono::seconds(seconds));
    ::_exit(code);
  }).detach();
} catch (const std::system_error&) {
  // No thread to be had: the process ends all the same unless something hangs.
}

Guard::Guard(std::chrono::milliseconds limit, const std::function<void()>& end) noexcept {
  const auto watch = [=](const std::stop_token& in_time) {
    constexpr auto tick = 50ms;
    std::mutex mutex;
    std::unique_lock lock(mutex);
    std::condition_variable_any never;
    for (auto lived = 0ms; lived < limit && !in_time.stop_requested(); lived += tick)
      never.wait_for(lock, in_time, tick, [] { return false; });
    if (!in_time.stop_requested()) end();
  };
  try {
    thread_ = std::jthread(watch);
  } catch (const std::system_error&) {
    // As above.
  }
}

}  // namespace ringtrain::allreduce
